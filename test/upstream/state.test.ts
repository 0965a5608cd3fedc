import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { array, assert as check, constantFrom, nat, oneof, property, record } from "fast-check";
import { HubError } from "../../src/base/errors.ts";
import type { Reconnect } from "../../src/manifest/manifest.ts";
import {
  type Effect,
  type Signal,
  type State,
  type StepEnvironment,
  type StepResult,
  step,
} from "../../src/upstream/state.ts";
import type { AuthorizationProgress } from "../../src/transport/http/target.ts";
import type { Goal } from "../../src/upstream/status.ts";
import { VirtualClock } from "../fixtures/virtual-clock.ts";

const NOW = 10_000;
const old = new HubError("connectionLost", "the old trouble");
const retryable = new HubError("connectionLost", "gone");
const fatal = new HubError("commandNotFound", "nothing there");
const POLICY: Reconnect = {
  policy: "exponential",
  base: 1000,
  max: 60_000,
  jitter: 0.2,
  maxAttempts: 5,
};
const circumstances = (its: Partial<StepEnvironment> = {}): StepEnvironment => ({
  now: NOW,
  random: 0,
  policy: POLICY,
  goal: "up",
  isRemote: false,
  ...its,
});

const signals = {
  start: { kind: "start" },
  stop: { kind: "stop" },
  reconnect: { kind: "reconnect" },
  cancel: { kind: "cancel" },
  opened: { kind: "opened", session: "new" },
  late: { kind: "late", since: 4000, reason: old },
  challenged: { kind: "challenged" },
  progressed: { kind: "progressed", progress: { step: "exchangingToken" } },
  authorized: { kind: "authorized" },
  denied: { kind: "denied", cause: fatal },
  lost: { kind: "lost", cause: retryable },
  fatal: { kind: "lost", cause: fatal },
  unresponsive: { kind: "unresponsive" },
  responsive: { kind: "responsive" },
  stable: { kind: "stable" },
  drained: { kind: "drained" },
  due: { kind: "due" },
  idleTimeout: { kind: "idleTimeout" },
} as const satisfies Record<string, Signal<string>>;

const starting: AuthorizationProgress = { step: "starting" };
const waiting = {
  at: "reconnecting",
  attempt: 2,
  maxAttempts: 5,
  retryAt: 11_500,
  cause: old,
} as const;
const failed = { at: "failed", attempt: 5, cause: old } as const;
const connected = { at: "connected", session: "s", since: 9000, attempt: 2 } as const;

const states = {
  idle: { at: "idle" },
  connecting: { at: "connecting", attempt: 2 },
  "connecting, late": { at: "connecting", attempt: 2, lateSince: 3000 },
  authenticating: { at: "authenticating", attempt: 2, progress: starting, session: undefined },
  "authenticating, still open": {
    at: "authenticating",
    attempt: 2,
    progress: starting,
    session: "s",
  },
  connected: { ...connected, responsive: true },
  "connected, unresponsive": { ...connected, responsive: false },
  "connected, stable": { ...connected, responsive: true, attempt: 0 },
  reconnecting: waiting,
  "stopping to rest": { at: "stopping", next: { at: "idle" } },
  "stopping to connect": { at: "stopping", next: { at: "connecting", attempt: 1 } },
  "stopping to wait": { at: "stopping", next: waiting },
  "stopping as failed": { at: "stopping", next: failed },
  "stopping for good": { at: "stopping", next: { at: "disconnected" } },
  failed,
  disconnected: { at: "disconnected" },
} as const satisfies Record<string, State<string>>;

/** What leads from whatever is open to its end. */
const FROM_OPEN = {
  stop: "stopping > disconnected +close",
  lost: "stopping > reconnecting 2 of 5 at 12000: gone +close",
  fatal: "stopping > failed 2: nothing there +close",
};
const FROM_CONNECTING = {
  ...FROM_OPEN,
  late: "connecting 2 late since 4000",
  cancel: "stopping > idle +close",
  opened: "connected 2 with new since 10000 +arm stable at 40000",
  challenged: "authenticating 2 starting +authorize",
};
const FROM_AUTHENTICATING = {
  ...FROM_OPEN,
  reconnect: "stopping > connecting 1 +close",
  cancel: "stopping > idle +close",
};
const FROM_CONNECTED = {
  ...FROM_OPEN,
  reconnect: "stopping > connecting 1 +close",
  challenged: "authenticating 2 starting with s +authorize",
  idleTimeout: "stopping > idle +close",
};

/**
 * For every state what signals lead to: the next state, its attempt and whatever else is in it, and the effects. After
 * a signal that is not named it is the very same state, without effects. The goal is up, and of five attempts some are
 * left.
 */
const table: Record<keyof typeof states, Partial<Record<keyof typeof signals, string>>> = {
  idle: { start: "connecting 1 +open", reconnect: "connecting 1 +open", stop: "disconnected" },
  connecting: FROM_CONNECTING,
  "connecting, late": FROM_CONNECTING,
  authenticating: {
    ...FROM_AUTHENTICATING,
    denied: "stopping > failed 2: nothing there +close",
    progressed: "authenticating 2 exchangingToken",
    authorized: "connecting 2 +open",
  },
  "authenticating, still open": {
    ...FROM_AUTHENTICATING,
    denied: "connected 2 with s since 10000 +arm stable at 40000",
    progressed: "authenticating 2 exchangingToken with s",
    authorized: "connected 2 with s since 10000 +arm stable at 40000",
  },
  connected: {
    ...FROM_CONNECTED,
    unresponsive: "connected 2 with s since 9000, unresponsive",
    stable: "connected 0 with s since 9000",
  },
  "connected, unresponsive": {
    ...FROM_CONNECTED,
    responsive: "connected 2 with s since 9000",
    stable: "connected 0 with s since 9000, unresponsive",
  },
  "connected, stable": {
    ...FROM_CONNECTED,
    challenged: "authenticating 0 starting with s +authorize",
    lost: "stopping > reconnecting 0 of 5 at 11000: gone +close",
    fatal: "stopping > failed 0: nothing there +close",
    unresponsive: "connected 0 with s since 9000, unresponsive",
  },
  reconnecting: {
    start: "connecting 3 +open",
    due: "connecting 3 +open",
    stop: "disconnected",
    reconnect: "connecting 1 +open",
    cancel: "idle",
  },
  "stopping to rest": {
    start: "stopping > connecting 1",
    reconnect: "stopping > connecting 1",
    stop: "stopping > disconnected",
    drained: "idle",
  },
  "stopping to connect": {
    stop: "stopping > disconnected",
    cancel: "stopping > idle",
    drained: "connecting 1 +open",
  },
  "stopping to wait": {
    start: "stopping > connecting 3",
    stop: "stopping > disconnected",
    reconnect: "stopping > connecting 1",
    cancel: "stopping > idle",
    drained: "reconnecting 2 of 5 at 11500: the old trouble +arm due at 11500",
  },
  "stopping as failed": {
    start: "stopping > connecting 1",
    reconnect: "stopping > connecting 1",
    stop: "stopping > disconnected",
    drained: "failed 5: the old trouble",
  },
  "stopping for good": {
    start: "stopping > connecting 1",
    reconnect: "stopping > connecting 1",
    drained: "disconnected",
  },
  failed: { start: "connecting 1 +open", reconnect: "connecting 1 +open", stop: "disconnected" },
  disconnected: { start: "connecting 1 +open", reconnect: "connecting 1 +open" },
};

function print({ state, effects }: StepResult<string>): string {
  return [printState(state), ...effects.map(printEffect)].join(" ");
}

function printState(state: State<string>): string {
  switch (state.at) {
    case "idle":
    case "disconnected":
      return state.at;
    case "connecting":
      return `connecting ${state.attempt}${state.lateSince === undefined ? "" : ` late since ${state.lateSince}`}`;
    case "authenticating": {
      const open = state.session === undefined ? "" : ` with ${state.session}`;
      return `authenticating ${state.attempt} ${state.progress.step}${open}`;
    }
    case "connected": {
      const { attempt, session, since, responsive } = state;
      const silent = responsive ? "" : ", unresponsive";
      return `connected ${attempt} with ${session} since ${since}${silent}`;
    }
    case "reconnecting": {
      const { attempt, maxAttempts, retryAt, cause } = state;
      return `reconnecting ${attempt} of ${maxAttempts} at ${retryAt}: ${cause.message}`;
    }
    case "stopping":
      return `stopping > ${printState(state.next)}`;
    case "failed":
      return `failed ${state.attempt}: ${state.cause.message}`;
  }
}

function printEffect(effect: Effect): string {
  return effect.kind === "arm" ? `+arm ${effect.signal} at ${effect.at}` : `+${effect.kind}`;
}

describe("the table of states and signals", () => {
  for (const [name, before] of Object.entries(states)) {
    for (const [kind, signal] of Object.entries(signals)) {
      const next = table[name as keyof typeof states][kind as keyof typeof signals];
      it(`holds: ${name}, on ${kind}: ${next ?? "nothing"}`, () => {
        const after = step<string>(before, signal, circumstances());
        if (next !== undefined) {
          assert.equal(print(after), next);
          return;
        }
        assert.equal(after.state, before);
        assert.deepEqual(after.effects, []);
      });
    }
  }
});

describe("what becomes of a server that is lost", () => {
  const open = ["connecting", "authenticating", "authenticating, still open", "connected"] as const;
  const outcomes: readonly (readonly [Goal, "lost" | "fatal", string])[] = [
    ["up", "lost", "reconnecting 2 of 5 at 12000: gone"],
    ["up", "fatal", "failed 2: nothing there"],
    ["onDemand", "lost", "idle"],
    ["onDemand", "fatal", "failed 2: nothing there"],
    ["down", "lost", "disconnected"],
    ["down", "fatal", "disconnected"],
  ];
  for (const [goal, signal, next] of outcomes) {
    for (const name of open) {
      it(`that was ${name}, ${signal}, and shall be ${goal}: ${next}`, () => {
        const after = step(states[name], signals[signal], circumstances({ goal }));
        assert.equal(print(after), `stopping > ${next} +close`);
      });
    }
  }
});

describe("the time until the next attempt", () => {
  const after = (attempt: number, policy: Partial<Reconnect>, random = 0): string => {
    const its = circumstances({ random, policy: { ...POLICY, ...policy } });
    const { state } = step<string>({ at: "connecting", attempt }, signals.lost, its);
    assert.ok(state.at === "stopping");
    const { next } = state;
    return next.at === "reconnecting" ? String(next.retryAt - NOW) : next.at;
  };

  it("doubles from base to max", () => {
    const delays = [1, 2, 3, 4, 5, 6, 7, 8, 1000].map((attempt) =>
      after(attempt, { base: 500, max: 12_000, maxAttempts: 0 }),
    );
    const expected = [500, 1000, 2000, 4000, 8000, 12_000, 12_000, 12_000, 12_000];
    assert.deepEqual(delays, expected.map(String));
  });

  const ENDLESS = { maxAttempts: 0 };
  const HASTY = { base: 1, max: 5, maxAttempts: 0, jitter: 1 };
  for (const [what, attempt, policy, random, expected] of [
    ["max where that is less than base", 1, { base: 5000, max: 2000 }, 0, "2000"],
    ["less by a random part of jitter", 2, { jitter: 0.4 }, 0, "2000"],
    ["less by a random part of jitter", 2, { jitter: 0.4 }, 0.25, "1800"],
    ["less by a random part of jitter", 2, { jitter: 0.4 }, 0.5, "1600"],
    ["less by a random part of jitter", 2, { jitter: 0.4 }, 1, "1200"],
    ["exact without jitter", 2, { jitter: 0 }, 1, "2000"],
    ["nothing under the policy immediate", 1, { policy: "immediate" }, 0, "0"],
    ["nothing under the policy immediate", 4, { policy: "immediate" }, 1, "0"],
    ["little if little is wanted", 9, HASTY, 0, "5"],
    ["a second at least from the tenth attempt on", 10, HASTY, 0, "1000"],
    ["a second at least from the tenth attempt on", 10, HASTY, 1, "1000"],
    ["nothing at first", 9, { policy: "immediate", ...ENDLESS }, 0, "0"],
    ["a second from the tenth attempt on", 10, { policy: "immediate", ...ENDLESS }, 0, "1000"],
    ["never over under the policy none", 1, { policy: "none", ...ENDLESS }, 0, "failed"],
    ["over before the last attempt", 2, { policy: "immediate", maxAttempts: 3 }, 0, "0"],
    ["never over after the last attempt", 3, { policy: "immediate", maxAttempts: 3 }, 0, "failed"],
    ["over before the last attempt", 2, { maxAttempts: 3 }, 0, "2000"],
    ["never over after the last attempt", 3, { maxAttempts: 3 }, 0, "failed"],
    ["over for ever without maxAttempts", 1e6, { policy: "immediate", ...ENDLESS }, 0, "1000"],
    ["over for ever without maxAttempts", 1e6, ENDLESS, 0, "60000"],
  ] as const) {
    it(`is ${what}: ${expected} after attempt ${attempt} under ${JSON.stringify(policy)}`, () => {
      assert.equal(after(attempt, policy, random), expected);
    });
  }
});

describe("a server that runs by itself", () => {
  const lose = (since: number, its: Partial<StepEnvironment> = {}): string => {
    const { state } = step({ ...states.connected, since }, signals.lost, {
      ...circumstances(),
      isRemote: true,
      ...its,
    });
    assert.ok(state.at === "stopping");
    const { next } = state;
    return next.at === "reconnecting" ? `${next.at} at ${next.retryAt}` : next.at;
  };

  it("is looked for at once when it is lost, if it was there for a second", () => {
    assert.equal(lose(NOW - 1000), `reconnecting at ${NOW}`);
    assert.equal(lose(NOW - 999), "reconnecting at 12000");
  });

  it("is not looked for if that is not wanted, or was tried often enough", () => {
    assert.equal(lose(0, { policy: { ...POLICY, policy: "none" } }), "failed");
    assert.equal(lose(0, { policy: { ...POLICY, maxAttempts: 2 } }), "failed");
    assert.equal(lose(0, { goal: "onDemand" }), "idle");
    assert.equal(lose(0, { goal: "down" }), "disconnected");
  });
});

/** How an attempt that the machine asks for turns out, and how long opening and closing take, in ms. */
interface Outcome {
  readonly outcome: "opens" | "fails" | "fails for good" | "is challenged" | "hangs";
  readonly opening: number;
  readonly closing: number;
}

type Act =
  | { readonly signal: Signal<number> }
  /** What the server itself does. */
  | { readonly happens: Signal<number> }
  | { readonly goal: Goal }
  /** ms */
  | { readonly wait: number };

const WILLING: Outcome = { outcome: "opens", opening: 10, closing: 10 };

/**
 * All that is around the machine, made simple: carries out its effects under a virtual clock, and complains as soon as
 * they ask for what must not be.
 */
class World {
  readonly clock = new VirtualClock();
  readonly policy: Reconnect;
  state: State<number> = { at: "idle" };
  #goal: Goal = "up";
  /** What the next attempts turn out to be; after them all go well. */
  readonly outcomes: Outcome[];
  /** The server that there is: it opens, is open, or is being closed. */
  #server: { readonly epoch: number; readonly outcome: Outcome; closing: boolean } | undefined;
  #epoch = 0;
  #timer: { readonly kind: "due" | "stable"; readonly undo: () => void } | undefined;
  /** Somebody stopped it, and nobody has wanted it since. */
  #forbidden = false;

  constructor(policy: Reconnect, outcomes: readonly Outcome[]) {
    this.policy = policy;
    this.outcomes = [...outcomes];
  }

  signal(signal: Signal<number>): void {
    if (signal.kind === "start" || signal.kind === "reconnect") this.#forbidden = false;
    if (signal.kind === "stop") this.#forbidden = true;
    const before = this.state;
    const its = {
      now: this.clock.now(),
      isRemote: false,
      random: 0.5,
      policy: this.policy,
      goal: this.#forbidden ? "down" : this.#goal,
    } as const;
    const { state, effects } = step(before, signal, its);
    this.state = state;
    if (state.at !== before.at) {
      this.#timer?.undo();
      this.#timer = undefined;
    }
    this.#check();
    for (const effect of effects) this.#perform(effect);
  }

  live(act: Act): void {
    if ("signal" in act) this.signal(act.signal);
    else if ("goal" in act) this.#goal = act.goal;
    else if ("wait" in act) this.clock.advanceTo(this.clock.now() + act.wait);
    // Only a server that is open can do anything.
    else if ("session" in this.state && this.state.session !== undefined) this.signal(act.happens);
  }

  #perform(effect: Effect): void {
    switch (effect.kind) {
      case "open":
        this.#open();
        return;
      case "close":
        this.#close();
        return;
      case "authorize": {
        const epoch = this.#epoch;
        this.clock.after(5, () => {
          if (epoch === this.#epoch) this.signal({ kind: "authorized" });
        });
        return;
      }
      case "arm": {
        assert.equal(this.#timer, undefined, "two timers are armed");
        const owner = effect.signal === "due" ? "reconnecting" : "connected";
        assert.equal(this.state.at, owner, `"${effect.signal}" is armed in ${this.state.at}`);
        const undo = this.clock.after(effect.at - this.clock.now(), () => {
          this.#timer = undefined;
          assert.equal(this.state.at, owner, `"${effect.signal}" comes in ${this.state.at}`);
          this.signal({ kind: effect.signal });
        });
        this.#timer = { kind: effect.signal, undo };
      }
    }
  }

  #open(): void {
    // One that wanted an authorization has ended by itself.
    if (this.#server?.outcome.outcome === "is challenged") this.#server = undefined;
    assert.equal(this.#server, undefined, "a server is opened while there is another");
    assert.equal(this.#forbidden, false, "a stopped server is opened");
    const outcome = this.outcomes.shift() ?? WILLING;
    const epoch = ++this.#epoch;
    this.#server = { epoch, outcome, closing: false };
    if (outcome.outcome === "hangs") return;
    this.clock.after(outcome.opening, () => {
      if (this.#server?.epoch !== epoch || this.#server.closing) return;
      if (outcome.outcome === "opens") this.signal({ kind: "opened", session: epoch });
      else if (outcome.outcome === "is challenged") this.signal({ kind: "challenged" });
      else this.signal({ kind: "lost", cause: outcome.outcome === "fails" ? retryable : fatal });
    });
  }

  #close(): void {
    const server = this.#server;
    assert.ok(server !== undefined && !server.closing, "what is not there is closed");
    server.closing = true;
    this.#epoch++;
    this.clock.after(server.outcome.closing, () => {
      assert.equal(this.state.at, "stopping", "what was closed was not waited for");
      this.#server = undefined;
      this.signal({ kind: "drained" });
      assert.notEqual(this.state.at, "stopping", "it stops for ever");
    });
  }

  #check(): void {
    const { state } = this;
    const ahead = state.at === "stopping" ? state.next : state;
    const limit = this.policy.policy === "none" ? 1 : this.policy.maxAttempts || Infinity;
    if ("attempt" in ahead) assert.ok(ahead.attempt <= limit, `attempt ${ahead.attempt}`);
    if (state.at === "connected") assert.equal(state.session, this.#server?.epoch);
    const rests = ["idle", "failed", "disconnected", "reconnecting"].includes(state.at);
    if (rests) assert.equal(this.#server, undefined, `a server runs on in ${state.at}`);
  }
}

describe("the machine in any world", () => {
  const policy = record({
    policy: constantFrom(...(["none", "immediate", "exponential"] as const)),
    base: constantFrom(1, 1000),
    max: constantFrom(1, 60_000),
    jitter: constantFrom(0, 0.2, 1),
    maxAttempts: nat(4),
  });
  const outcome = record({
    outcome: constantFrom(
      ...(["opens", "fails", "fails for good", "is challenged", "hangs"] as const),
    ),
    opening: nat(2000),
    closing: nat(2000),
  });
  const signal = constantFrom(
    ...(["start", "stop", "reconnect", "cancel", "idleTimeout"] as const),
  );
  const event = constantFrom<Signal<number>[]>(
    { kind: "lost", cause: retryable },
    { kind: "lost", cause: fatal },
    { kind: "challenged" },
    { kind: "unresponsive" },
    { kind: "responsive" },
  );
  const act = oneof(
    signal.map((kind) => ({ signal: { kind } })),
    event.map((happens) => ({ happens })),
    constantFrom("up" as const, "onDemand" as const).map((goal) => ({ goal })),
    oneof(nat(20), nat(40_000)).map((wait) => ({ wait })),
  );

  /** Lives in any world for so many acts, and then does this. */
  function inAnyWorld(maxLength: number, finish: (world: World) => void): void {
    const acts = array(act, { maxLength });
    const run = property(policy, array(outcome), acts, (reconnect, outcomes, all) => {
      const world = new World(reconnect, outcomes);
      for (const each of all) world.live(each);
      finish(world);
    });
    check(run, { numRuns: 2000 });
  }

  it("has one server at most, closes what it leaves, and keeps to its timers, attempts and stops", () => {
    inAnyWorld(60, (world) => {
      world.live({ wait: 100_000 });
      assert.notEqual(world.state.at, "stopping");
    });
  });

  it("is connected after a start, whatever it was before, if the server is willing", () => {
    inAnyWorld(30, (world) => {
      // An attempt that hangs is not what a start ends: it is given up first.
      world.signal({ kind: "cancel" });
      world.outcomes.length = 0;
      world.live({ goal: "up" });
      world.signal({ kind: "start" });
      world.live({ wait: 100_000 });
      assert.equal(world.state.at, "connected");
    });
  });

  it("is at rest after a stop, and opens nothing until it is started", () => {
    inAnyWorld(30, (world) => {
      world.signal({ kind: "stop" });
      world.live({ wait: 1_000_000 });
      assert.equal(world.state.at, "disconnected");
      assert.deepEqual(world.clock.pendingDelays, []);
    });
  });
});
