// A relay that is not ours: node-to-node by another implementation, over the chain that it is told.
// peer.mjs MAGIC says its port, then what it was asked, a line each. On stdin: {"slot", "block", "header", "hash"}, a
// block more; {"back": slot}, the chain ends there again.

import { createRequire } from "node:module";
import { createServer } from "node:net";
import { createInterface } from "node:readline";

const require = createRequire(import.meta.url);
const o = require("@harmoniclabs/ouroboros-miniprotocols-ts");
const { Cbor, CborArray, CborBytes, CborTag, CborUInt } = require("@harmoniclabs/cbor");

const magic = Number(process.argv[2]);
const say = (...words) => console.log(words.join(" "));
const chain = [];
const last = () => chain[chain.length - 1];
const asPoint = (one) => (one ? new o.ChainPoint({ blockHeader: { slotNumber: one.slot, hash: one.hash } }) : o.ChainPoint.origin);
const asTip = () => new o.ChainTip({ point: asPoint(last()), blockNo: last()?.block ?? 0 });
const readers = new Set();

createServer((socket) => {
  const mux = new o.Multiplexer({ protocolType: "node-to-node", connect: () => socket });
  const send = (message, protocol) => mux.send(Cbor.encode(message.toCborObj()).toBuffer(), { hasAgency: false, protocol });
  const reader = { at: 0, back: false, waits: false, next };
  readers.add(reader);
  socket.on("close", () => readers.delete(reader));
  socket.on("error", () => {});

  mux.on(o.MiniProtocol.Handshake, (payload) => {
    const { versionTable } = o.HandshakeProposeVersion.fromCbor(payload, true);
    const versions = Object.keys(versionTable).map(Number);
    const theirs = versionTable[versions[0]].networkMagic;
    say("proposed", versions.join(","), theirs);
    const version = Math.max(...versions.filter((one) => one <= 14));
    if (theirs !== magic) {
      const reason = new o.RefuseReasonRefuse({ version, errorMessage: `networkMagic ${theirs} is not ${magic}` });
      send(new o.HandshakeRefuse({ reason }), o.MiniProtocol.Handshake);
      return;
    }
    const versionData = new o.VersionData({ networkMagic: magic, initiatorOnlyDiffusionMode: false, peerSharing: false, query: false });
    send(new o.HandshakeAcceptVersion({ versionNumber: version, versionData }, true), o.MiniProtocol.Handshake);
  });

  mux.on(o.MiniProtocol.KeepAlive, (payload) => {
    const { cookie } = o.KeepAliveRequest.fromCbor(payload);
    say("alive", cookie);
    send(new o.KeepAliveResponse({ cookie }), o.MiniProtocol.KeepAlive);
  });

  function next() {
    if (reader.back) {
      reader.back = false;
      send(new o.ChainSyncRollBackwards({ point: asPoint(chain[reader.at - 1]), tip: asTip() }), o.MiniProtocol.ChainSync);
      return true;
    }
    if (reader.at >= chain.length) return false;
    const header = new CborArray([new CborUInt(6), new CborTag(24, new CborBytes(chain[reader.at].header))]);
    reader.at += 1;
    send(new o.ChainSyncRollForward({ data: header, tip: asTip() }), o.MiniProtocol.ChainSync);
    return true;
  }

  mux.on(o.MiniProtocol.ChainSync, (payload) => {
    const asked = o.chainSyncMessageFromCbor(payload);
    if (asked instanceof o.ChainSyncFindIntersect) {
      const [point] = asked.points;
      const slot = point.blockHeader && Number(point.blockHeader.slotNumber);
      const found = point.blockHeader ? chain.findIndex((one) => one.slot === slot) + 1 : 0;
      say("intersect", slot ?? "origin");
      if (point.blockHeader && !found) return send(new o.ChainSyncIntersectNotFound({ tip: asTip() }), o.MiniProtocol.ChainSync);
      Object.assign(reader, { at: found, back: true });
      return send(new o.ChainSyncIntersectFound({ point, tip: asTip() }), o.MiniProtocol.ChainSync);
    }
    say("next");
    reader.waits = !next();
    if (reader.waits) send(new o.ChainSyncAwaitReply(), o.MiniProtocol.ChainSync);
    return undefined;
  });
}).listen(0, "127.0.0.1", function listening() {
  say("port", this.address().port);
});

createInterface({ input: process.stdin }).on("line", (line) => {
  const told = JSON.parse(line);
  if ("back" in told) {
    while (last() && last().slot > told.back) chain.pop();
    for (const one of readers) if (one.at > chain.length) Object.assign(one, { at: chain.length, back: true });
  } else chain.push({ ...told, header: Buffer.from(told.header, "hex"), hash: Buffer.from(told.hash, "hex") });
  for (const one of readers) if (one.waits && one.next()) one.waits = false;
  say("has", last()?.slot ?? "nothing");
});
