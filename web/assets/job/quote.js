// The quote on a job's page: what was checked, what it takes, and the one click that agrees to it.

import { get, post, Problem } from "../net/api.js";
import { accept, acceptWarm, examine, finish, missingSecrets, prepare, Short, warmth } from "../wallet/agree.js";
import { here } from "../wallet/browser.js";
import { byId } from "../ui/dom.js";
import { faultOf } from "../chain/judge.js";
import { poolKeyIn, REMEDY } from "../crypto/pool_keys.js";
import { lock } from "../crypto/seal.js";
import { expectedRow, feeRows, routedRow, startRow } from "../ui/fees.js";
import { make, refresh, wrong } from "../ui/live.js";
import { Refused } from "../money/records.js";
import { amount as money, fiat, price } from "../ui/amounts.js";
import { about, duration, parseAda } from "../money/units.js";
import * as vault from "../money/vault.js";
import { walletSaid } from "../wallet/wallet.js";

/**
 * @import { Agreed, Ready } from "../wallet/agree.js"
 * @import { Check } from "../chain/judge.js"
 * @import { JobView } from "../net/answers.js"
 * @import { Terms } from "../money/records.js"
 * @import { Begun, Paying, Stored } from "../money/books.js"
 * @typedef {Node | string} Text
 */

const SETTLE_MS = 400; // after the last key
const LOOK_MS = 5000; // for money that is on its way

/** @type {(name: string, value: Text, hint?: Text, class_?: string) => HTMLElement} */
const line = (name, value, hint, class_) => make("div", { class: class_ }, make("dt", {}, name, hint ? make("small", {}, hint) : ""), make("dd", {}, value));
const most = (/** @type {Terms} */ terms) =>
  line("The most this job can cost", make("span", {}, money(terms.ceiling), " ", fiat(terms.ceiling)), make("span", {}, price(terms.rate_micro), `, for ${duration(terms.max_duration_ms)} at most`));
/** @type {(check: Check) => HTMLElement} */
const check = ({ ok, text, wrong: not }) => make("li", { class: ok ? "ok" : "no" }, ok ? text : not);

export class Quote {
  /**
   * *onPaid* is called once the job is paid for.
   * @param {string} job
   * @param {number} magic
   * @param {() => Promise<void>} onPaid
   */
  constructor(job, magic, onPaid) {
    this.job = job;
    this.magic = magic;
    this.ground = here(magic);
    this.onPaid = onPaid;
    this.agreedAlready = false;
    this.ahead = false;
    this.keepMs = 0;
    this.section = byId("pay");
    this.body = byId("pay-body");
    this.button = make("button", { type: "button", id: "pay-now" });
    this.work = async () => {};
  }

  hide() {
    this.section.hidden = true;
  }

  /** Read the quote, and ask. `agreedAlready`: the click that asked for this quote was the consent. */
  async show() {
    /** @type {JobView} */
    const view = await get(`/v1/jobs/${this.job}`);
    if (!view.quote) return;
    this.section.hidden = false;
    this.body.replaceChildren(make("p", { role: "status", class: "loading" }, "Reading the terms and the transaction …"));
    try {
      const agreed = await examine(this.ground, view);
      if (agreed.mine.begun) return await this.goOn(agreed.mine, agreed.mine.begun);
      if (missingSecrets(agreed).length) return this.askSecrets(agreed);
      if (agreed.warm) this.warm({ ...agreed, warm: agreed.warm });
      else await this.fresh(agreed);
      if (this.agreedAlready && !this.button.disabled) await this.work();
      this.agreedAlready = false;
    } catch (error) {
      this.refused(error);
    }
  }

  /** @param {unknown} error */
  refused(error) {
    if (error instanceof Short) return this.short(error);
    this.body.replaceChildren(make("p", { class: "problem", role: "alert" }, error instanceof Refused ? error.message : walletSaid(error)));
    if (error instanceof Refused) return;
    this.body.append(make("p", { class: "actions" },
      make("button", { type: "button", onclick: () => this.show() }, "Try again"),
      make("a", { href: `/sign-in?to=/jobs/${this.job}`, class: "button plain" }, "Connect the wallet")));
  }

  /**
   * What the wallet lacks, and for what.
   * @param {Short} short
   */
  short({ holds, needs, ceiling, reserve, address }) {
    const faucet = {
      1: make("a", { href: "https://docs.cardano.org/cardano-testnets/tools/faucet", rel: "noreferrer" }, "Get test ADA from the faucet"),
      2: make("a", { href: "https://docs.cardano.org/cardano-testnets/tools/faucet", rel: "noreferrer" }, "Get test ADA from the faucet"),
      42: make("code", {}, `tally faucet ${address} '100 ADA'`),
    }[this.magic];
    this.body.replaceChildren(
      make("p", { class: "problem", role: "alert", id: "short" }, "Your wallet has ", money(holds), ". This job needs ", money(needs), "."),
      make("dl", { class: "bill" },
        line("The most this job can cost", money(ceiling), "what it does not use comes back"),
        line("Reserve", money(reserve), "comes back at the end"),
        line("For the chain's fee and the change", money(needs - ceiling - reserve), "the change stays yours"),
        line("Your wallet lacks", money(needs - holds), "", "total")),
      make("p", { class: "hint" }, faucet ? "This is a test network: its ADA costs nothing. " : "Send ADA to your wallet, and look again. ", faucet ?? ""),
      make("p", { class: "actions" }, make("button", { type: "button", onclick: () => this.show() }, "Look again")));
    void this.untilMoney(byId("short"));
  }

  /**
   * The page goes on by itself once the wallet holds enough, as long as *shown* is what it shows.
   * @param {HTMLElement} shown
   */
  async untilMoney(shown) {
    while (shown.isConnected) {
      await new Promise((wake) => {
        setTimeout(wake, LOOK_MS);
      });
      if (!shown.isConnected || document.hidden) continue;
      const lacks = await this.looked().then(() => false, (error) => error instanceof Short || error instanceof Problem);
      if (!lacks && shown.isConnected) return this.show();
    }
  }

  /** What the wallet would sign now; {@link Short} while it holds too little. */
  async looked() {
    return prepare(this.ground, await examine(this.ground, await get(`/v1/jobs/${this.job}`)));
  }

  // ---- a channel that the wallet opens -------------------------------------------------------

  /** @param {Agreed} agreed */
  async fresh(agreed) {
    const ready = await prepare(this.ground, agreed);
    const reserve = ready.checked.reserve;
    const place = make("div", {});
    let now = ready;
    const set = (/** @type {Ready} */ given) => {
      now = given;
      place.replaceChildren(...this.opening(agreed, given));
      this.button.disabled = !given.checked.ok;
    };
    this.go("Sign and start", () => this.pay(agreed, "Waiting for the wallet …", () => accept(this.ground, this.withAhead(agreed), now, this.keepMs)));
    set(ready);
    this.body.replaceChildren(place, this.keeping(agreed, async (extra) => {
      this.button.disabled = true;
      set(await prepare(this.ground, agreed, extra, reserve));
    }), this.leaving(agreed), this.actions(agreed));
  }

  /** @type {(agreed: Agreed, ready: Ready) => Text[]} */
  opening({ terms, quote }, { checked, extra }) {
    return [
      checked.ok
        ? make("p", {}, "Your wallet will sign one transaction. This page has read its bytes:")
        : make("p", { class: "problem", role: "alert", id: "not-as-agreed" }, `The transaction that the market built is not the one that was agreed: ${faultOf(checked)}. Your wallet is not asked.`),
      make("dl", { class: "bill" },
        most(terms),
        extra ? line("Put aside for later jobs", money(extra), "pays nobody until you agree to a job") : "",
        line("Reserve", money(checked.reserve), "comes back at the end"),
        line("Fee of the chain", money(checked.fee), "of this transaction; the one that ends the channel costs you nothing"),
        line("Leaves your wallet now", money(checked.amount + checked.fee), "all of it together", "total"),
        line("Comes back at the end", money(checked.reserve + extra), "and with it what the job does not use"),
        startRow(quote.offer?.allowance ?? 0),
        expectedRow(quote.expected_start),
        ...feeRows(quote.fees, quote.offer?.minimum ?? 0),
        routedRow(quote.routed)),
      make("ul", { class: "checks", "aria-label": "What was checked" },
        make("li", { class: "ok" }, "the provider signed these terms, and they are what you asked for"), ...checked.checks.map(check)),
    ];
  }

  /**
   * The choice to keep the channel for a next job, and what to put aside in it; none where its provider keeps none.
   * A job that goes on elsewhere is asked as it was the first time.
   * @param {Agreed} agreed
   * @param {(extra: bigint) => Promise<void>} change
   */
  keeping({ keepMs, mine }, change) {
    const checked = mine.keep ?? true;
    this.keepMs = checked ? keepMs : 0;
    if (!keepMs) return "";
    let timer = 0;
    const amount = make("input", { name: "extra", inputmode: "decimal", value: "0", autocomplete: "off", size: 8 });
    const more = make("label", { hidden: !checked, class: "short" }, "Put aside for later jobs (₳)", amount);
    const box = make("input", { type: "checkbox", name: "keep", checked });
    const read = () => {
      const value = box.checked ? parseAda(amount.value || "0") : 0;
      amount.toggleAttribute("aria-invalid", value === null);
      this.button.disabled = true;
      clearTimeout(timer);
      if (value !== null) timer = setTimeout(() => change(BigInt(value)).catch((error) => this.refused(error)), SETTLE_MS);
    };
    amount.addEventListener("input", read);
    box.addEventListener("change", () => {
      this.keepMs = box.checked ? keepMs : 0;
      more.hidden = !box.checked;
      if (parseAda(amount.value)) read();
    });
    return make("div", {},
      make("label", { class: "check" }, box, `Keep the channel open for my next job with this provider, until it was idle for ${duration(keepMs)}`),
      make("p", { class: "hint" }, "What this job leaves in it then pays the next one without asking the wallet. Once it is idle for so long the provider ends it, and the rest comes home; Finish on the Channels page does so at once."),
      make("div", { class: "row" }, more));
  }

  // ---- a channel that is open ----------------------------------------------------------------

  /** @param {Agreed & {warm: Paying}} agreed */
  warm(agreed) {
    const { terms, warm } = agreed;
    const { left, lacking } = warmth(warm, terms);
    this.go(lacking ? "Top up and start" : "Start", () => this.pay(agreed, lacking ? "Waiting for the wallet …" : "Starting …", () => acceptWarm(this.ground, { ...this.withAhead(agreed), warm })));
    this.body.replaceChildren(
      make("p", { id: "warm" }, lacking
        ? `You have an open channel to this provider. Your wallet adds ${about(lacking)} to it: one signature.`
        : "You have an open channel to this provider with enough in it. Your wallet is not asked."),
      make("dl", { class: "bill" },
        most(terms),
        line("Left in the channel", money(left)),
        line("Leaves your wallet now", money(lacking), lacking ? "and the chain's fee" : "no transaction, no fee", "total"),
        line("Comes back", "what the job does not use", "with the rest of the channel, once it ends"),
        ...feeRows(agreed.quote.fees && { ...agreed.quote.fees, consumer: lacking ? agreed.quote.fees.top_up : 0 }, 0)),
      make("ul", { class: "checks", "aria-label": "What was checked" },
        make("li", { class: "ok" }, "the provider signed these terms, and they are what you asked for"),
        make("li", { class: "ok" }, "the channel's key is in this browser, and its rules are those of the terms"),
        make("li", { class: lacking ? "no" : "ok" }, lacking ? "the channel holds less than the ceiling: it is topped up first" : "the channel holds the ceiling")),
      this.leaving(agreed), this.actions(agreed));
  }

  // ---- both ----------------------------------------------------------------------------------

  /**
   * The choice to sign ahead for the whole job, with what is then at risk: an allowance (docs/decisions/0051, 0141).
   * @param {Agreed} agreed
   */
  leaving({ terms }) {
    const box = make("input", { type: "checkbox", name: "ahead", checked: this.ahead, onchange: () => { this.ahead = box.checked; } });
    return make("div", {},
      make("label", { class: "check" }, box, "Let it run on when I close this page: sign ahead for the whole job"),
      make("p", { class: "hint" }, "With its first receipt this browser signs an allowance of all ", money(terms.ceiling),
        ". What is delivered of it is due, and the rest comes home. The risk: a dishonest provider could take all of it from the script, delivered or not, and the invoice would then prove it; and if the provider is lost, the job goes on elsewhere only with what its budget holds beyond that. Otherwise two ticks are at risk, and a closed page pauses the job and soon ends it."));
  }

  /** @type {(agreed: Agreed) => Agreed} */
  withAhead(agreed) {
    return { ...agreed, aheadMs: this.ahead ? Number(agreed.terms.max_duration_ms) : 0 };
  }

  /**
   * The button that agrees, and what it does.
   * @param {string} text
   * @param {() => Promise<void>} work
   */
  go(text, work) {
    this.work = () => work().catch((error) => wrong(walletSaid(error)));
    this.button = make("button", { type: "button", id: "pay-now", onclick: () => this.work() }, text);
  }

  /** @param {Agreed} agreed */
  actions({ terms }) {
    return make("p", { class: "actions" }, this.button, make("button", { type: "button", class: "plain", onclick: () => this.decline(terms.lease) }, "Decline"));
  }

  /**
   * @param {Agreed} agreed
   * @param {string} meanwhile
   * @param {() => Promise<unknown>} work
   */
  async pay(agreed, meanwhile, work) {
    const button = this.button;
    const before = button.textContent;
    button.disabled = true;
    button.setAttribute("aria-busy", "true");
    button.textContent = meanwhile;
    wrong("");
    try {
      await work();
      this.hide();
      byId("main").focus();
      await refresh();
      await this.onPaid();
    } catch (error) {
      wrong(walletSaid(error));
      button.textContent = before;
      if ((await vault.load(agreed.mine.id))?.begun) {
        button.textContent = "Try again";
        this.work = async () => location.reload();
      }
      button.disabled = false;
    } finally {
      button.removeAttribute("aria-busy");
    }
  }

  /**
   * Values that this browser does not have: the job was posted elsewhere, or they were sealed before.
   * @param {Agreed} agreed
   */
  askSecrets(agreed) {
    const inputs = missingSecrets(agreed).map((name) => make("input", { type: "password", name, autocomplete: "off", required: true }));
    const form = make("form", {},
      make("p", {}, "This job takes secrets. They are sealed here to the provider's key: nobody between can read them."),
      ...inputs.map((input) => make("label", {}, input.name, input)),
      make("p", { class: "actions" }, make("button", { type: "submit" }, "Go on")));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const values = { ...agreed.secrets, ...Object.fromEntries(inputs.map((input) => [input.name, input.value])) };
      for (const [name, value] of Object.entries(values)) {
        const held = poolKeyIn(value);
        if (held) return wrong(`The secret ${name} holds ${held}: ${REMEDY}`);
      }
      await vault.keep({ ...agreed.asked, locked: await lock(values) }); // unreadable until they are sealed
      await this.show();
    });
    this.body.replaceChildren(form);
  }

  /**
   * The wallet has signed already, and the market did not hear all of it: no second signature.
   * @param {Stored} book
   * @param {Begun} begun
   */
  async goOn(book, begun) {
    this.body.replaceChildren(make("p", { role: "status", class: "loading" }, "Going on where it stopped: the wallet has signed already …"));
    await finish(this.ground, book, begun);
    this.hide();
    await refresh();
    await this.onPaid();
  }

  /** @param {string} lease */
  async decline(lease) {
    await post(`/v1/leases/${lease}/decline`).catch((error) => wrong(error.message));
    this.hide();
    await refresh();
  }
}
