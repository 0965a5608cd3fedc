import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HubError } from "../../src/base/errors.ts";
import { LIMIT_DEFAULTS, type Reconnect } from "../../src/manifest/manifest.ts";
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

const NOW = 10_000;
const old = new HubError("connectionLost", "the old trouble");
const retryable = new HubError("connectionLost", "gone");
const fatal = new HubError("commandNotFound", "nothing there");
const POLICY: Reconnect = { ...LIMIT_DEFAULTS.reconnect, maxAttempts: 5 };
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
  processEnded: { kind: "processEnded" },
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
    processEnded: "idle",
  },
  "stopping to connect": {
    stop: "stopping > disconnected",
    cancel: "stopping > idle",
    processEnded: "connecting 1 +open",
  },
  "stopping to wait": {
    start: "stopping > connecting 3",
    stop: "stopping > disconnected",
    reconnect: "stopping > connecting 1",
    cancel: "stopping > idle",
    processEnded: "reconnecting 2 of 5 at 11500: the old trouble +arm due at 11500",
  },
  "stopping as failed": {
    start: "stopping > connecting 1",
    reconnect: "stopping > connecting 1",
    stop: "stopping > disconnected",
    processEnded: "failed 5: the old trouble",
  },
  "stopping for good": {
    start: "stopping > connecting 1",
    reconnect: "stopping > connecting 1",
    processEnded: "disconnected",
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
      return state.cause === undefined ? "idle" : `idle: ${state.cause.message}`;
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
  for (const [name, next] of [
    ["connecting", "idle: gone"],
    ["authenticating", "idle: gone"],
    ["authenticating, still open", "idle"],
    ["connected", "idle"],
  ] as const) {
    it(`that was ${name}, and is started by calls: ${next}`, () => {
      const after = step(states[name], signals.lost, circumstances({ goal: "onDemand" }));
      assert.equal(print(after), `stopping > ${next} +close`);
    });
  }

  const open = ["connecting", "authenticating", "authenticating, still open", "connected"] as const;
  const outcomes: readonly (readonly [Goal, "lost" | "fatal", string])[] = [
    ["up", "lost", "reconnecting 2 of 5 at 12000: gone"],
    ["up", "fatal", "failed 2: nothing there"],
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
