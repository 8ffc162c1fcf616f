// A relay that is not ours: node-to-node by another implementation, over a chain that it is given.

import { createRequire } from "node:module";
import { createServer } from "node:net";

const require = createRequire(import.meta.url);
const o = require("@harmoniclabs/ouroboros-miniprotocols-ts");
const { Cbor, CborArray, CborBytes, CborTag, CborUInt } = require("@harmoniclabs/cbor");

const asPoint = (one) => (one ? new o.ChainPoint({ blockHeader: { slotNumber: one.slot, hash: one.hash } }) : o.ChainPoint.origin);

/** One of the network *magic*. Blocks are `{slot, block, header, hash}`, bytes; *say* is told what it was asked, in words. */
export class Relay {
  #chain = [];
  #readers = new Set();
  #sockets = new Set();

  constructor(magic, say = () => {}) {
    this.magic = magic;
    this.say = say;
    this.server = createServer((socket) => this.#serve(socket));
  }

  get last() {
    return this.#chain[this.#chain.length - 1];
  }

  listen(port, host) {
    return new Promise((done) => this.server.listen(port, host, () => done(this.server.address().port)));
  }

  /** Nobody listens there any more, and nobody is answered. */
  close() {
    for (const one of this.#sockets) one.destroy();
    return new Promise((done) => this.server.close(done));
  }

  /** A block more. */
  add(block) {
    this.#chain.push(block);
    this.#news();
  }

  /** The chain ends at *slot* again. */
  back(slot) {
    while (this.last && this.last.slot > slot) this.#chain.pop();
    for (const one of this.#readers) if (one.at > this.#chain.length) Object.assign(one, { at: this.#chain.length, back: true });
    this.#news();
  }

  #news() {
    for (const one of this.#readers) if (one.waits && one.next()) one.waits = false;
  }

  #tip() {
    return new o.ChainTip({ point: asPoint(this.last), blockNo: this.last?.block ?? 0 });
  }

  #serve(socket) {
    const mux = new o.Multiplexer({ protocolType: "node-to-node", connect: () => socket });
    const send = (message, protocol) => mux.send(Cbor.encode(message.toCborObj()).toBuffer(), { hasAgency: false, protocol });
    const reader = { at: 0, back: false, waits: false, next: () => this.#next(reader, send) };
    this.#readers.add(reader);
    this.#sockets.add(socket);
    socket.on("close", () => {
      this.#readers.delete(reader);
      this.#sockets.delete(socket);
    });
    socket.on("error", () => {});
    mux.on("error", () => {}); // whoever asked is gone: the others go on

    mux.on(o.MiniProtocol.Handshake, (payload) => {
      const { versionTable } = o.HandshakeProposeVersion.fromCbor(payload, true);
      const versions = Object.keys(versionTable).map(Number);
      const theirs = versionTable[versions[0]].networkMagic;
      this.say("proposed", versions.join(","), theirs);
      const version = Math.max(...versions.filter((one) => one <= 14));
      if (theirs !== this.magic) {
        const reason = new o.RefuseReasonRefuse({ version, errorMessage: `networkMagic ${theirs} is not ${this.magic}` });
        send(new o.HandshakeRefuse({ reason }), o.MiniProtocol.Handshake);
        return;
      }
      const versionData = new o.VersionData({ networkMagic: this.magic, initiatorOnlyDiffusionMode: false, peerSharing: false, query: false });
      send(new o.HandshakeAcceptVersion({ versionNumber: version, versionData }, true), o.MiniProtocol.Handshake);
    });

    mux.on(o.MiniProtocol.KeepAlive, (payload) => {
      const { cookie } = o.KeepAliveRequest.fromCbor(payload);
      this.say("alive", cookie);
      send(new o.KeepAliveResponse({ cookie }), o.MiniProtocol.KeepAlive);
    });

    mux.on(o.MiniProtocol.ChainSync, (payload) => {
      const asked = o.chainSyncMessageFromCbor(payload);
      if (asked instanceof o.ChainSyncFindIntersect) {
        const [point] = asked.points;
        const slot = point.blockHeader && Number(point.blockHeader.slotNumber);
        const named = (one) => one.slot === slot && one.hash.equals(point.blockHeader.hash);
        const found = point.blockHeader ? this.#chain.findIndex(named) + 1 : 0;
        this.say("intersect", slot ?? "origin");
        if (point.blockHeader && !found) return send(new o.ChainSyncIntersectNotFound({ tip: this.#tip() }), o.MiniProtocol.ChainSync);
        Object.assign(reader, { at: found, back: true });
        return send(new o.ChainSyncIntersectFound({ point, tip: this.#tip() }), o.MiniProtocol.ChainSync);
      }
      this.say("next");
      reader.waits = !reader.next();
      if (reader.waits) send(new o.ChainSyncAwaitReply(), o.MiniProtocol.ChainSync);
      return undefined;
    });
  }

  #next(reader, send) {
    if (reader.back) {
      reader.back = false;
      send(new o.ChainSyncRollBackwards({ point: asPoint(this.#chain[reader.at - 1]), tip: this.#tip() }), o.MiniProtocol.ChainSync);
      return true;
    }
    if (reader.at >= this.#chain.length) return false;
    const header = new CborArray([new CborUInt(6), new CborTag(24, new CborBytes(this.#chain[reader.at].header))]);
    reader.at += 1;
    send(new o.ChainSyncRollForward({ data: header, tip: this.#tip() }), o.MiniProtocol.ChainSync);
    return true;
  }
}

/** A block as JSON tells it, header and hash in hex. */
export const block = (told) => ({ ...told, header: Buffer.from(told.header, "hex"), hash: Buffer.from(told.hash, "hex") });
