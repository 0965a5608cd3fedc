import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HubError } from "../src/errors.ts";
import { type Signal, type State, step } from "../src/upstream/state.ts";

type Name = State<string>["at"];
const cause = new HubError("connectionLost", "gone");
const other = new HubError("connectionLost", "gone again");

const states: Record<string, State<string>> = {
  idle: { at: "idle" },
  connecting: { at: "connecting" },
  connected: { at: "connected", session: "s" },
  "stopping to connect": { at: "stopping", next: { at: "connecting" } },
  "stopping for good": { at: "stopping", next: { at: "disconnected" } },
  "stopping as failed": { at: "stopping", next: { at: "failed", cause } },
  failed: { at: "failed", cause },
  disconnected: { at: "disconnected" },
};
const signals: Record<Signal<string>["kind"], Signal<string>> = {
  start: { kind: "start" },
  stop: { kind: "stop" },
  opened: { kind: "opened", session: "t" },
  lost: { kind: "lost", cause: other },
  drained: { kind: "drained" },
};

/** Every state × signal; "stay" is the very same state and no effect. */
const table: Record<string, Record<Signal<string>["kind"], string>> = {
  idle: {
    start: "connecting +open",
    stop: "disconnected",
    opened: "stay",
    lost: "stay",
    drained: "stay",
  },
  connecting: {
    start: "stay",
    stop: "stopping>disconnected +close",
    opened: "connected",
    lost: "stopping>failed +close",
    drained: "stay",
  },
  connected: {
    start: "stay",
    stop: "stopping>disconnected +close",
    opened: "stay",
    lost: "stopping>failed +close",
    drained: "stay",
  },
  "stopping to connect": {
    start: "stay",
    stop: "stopping>disconnected",
    opened: "stay",
    lost: "stay",
    drained: "connecting +open",
  },
  "stopping for good": {
    start: "stopping>connecting",
    stop: "stay",
    opened: "stay",
    lost: "stay",
    drained: "disconnected",
  },
  "stopping as failed": {
    start: "stopping>connecting",
    stop: "stopping>disconnected",
    opened: "stay",
    lost: "stay",
    drained: "failed",
  },
  failed: {
    start: "connecting +open",
    stop: "disconnected",
    opened: "stay",
    lost: "stay",
    drained: "stay",
  },
  disconnected: {
    start: "connecting +open",
    stop: "stay",
    opened: "stay",
    lost: "stay",
    drained: "stay",
  },
};

function print(state: State<string>): string {
  return state.at === "stopping" ? `${state.at}>${state.next.at}` : state.at;
}

describe("the state machine", () => {
  for (const [name, row] of Object.entries(table)) {
    for (const [kind, expected] of Object.entries(row)) {
      it(`${name}, on ${kind}: ${expected}`, () => {
        const before = states[name];
        assert.ok(before);
        const after = step(before, signals[kind as Signal<string>["kind"]]);
        if (expected === "stay") {
          assert.equal(after.state, before);
          assert.deepEqual(after.effects, []);
          return;
        }
        const effects = after.effects.map((effect) => ` +${effect}`).join("");
        assert.equal(print(after.state) + effects, expected);
      });
    }
  }

  it("never has two servers at a time, whatever the order of signals", () => {
    let seed = 20_261_121;
    const random = (below: number): number => {
      seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
      return Math.floor((seed / 2 ** 31) * below);
    };
    const kinds = Object.keys(signals) as Signal<string>["kind"][];
    for (let run = 0; run < 200; run++) {
      let state: State<string> = { at: "idle" };
      let open = 0;
      const seen: Name[] = [];
      for (let i = 0; i < 50; i++) {
        const kind = kinds[random(kinds.length)] ?? "start";
        // A real server drains only once it is being closed.
        if (kind === "drained" && state.at !== "stopping") continue;
        if (kind === "drained") open--;
        const next: ReturnType<typeof step<string>> = step(state, signals[kind]);
        if (next.effects.includes("open")) open++;
        state = next.state;
        seen.push(state.at);
        assert.ok(open === 0 || open === 1, `${open} servers after ${seen.join(", ")}`);
      }
    }
  });
});
