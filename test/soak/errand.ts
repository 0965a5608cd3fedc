import type { Chance } from "./chance.ts";

/** A call as it is made, and what comes back of it if all is well. Names are the server's own. */
export interface Errand {
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
  /** Progress is asked for. */
  readonly tellsProgress: boolean;
  /** `never`: no answer of the server itself is right. */
  readonly right: "never" | { readonly error: number } | ((result: Result) => boolean);
}

/** The members of results that are looked at. */
export interface Result {
  readonly content?: readonly { readonly type: string; readonly text?: string }[];
  readonly structuredContent?: unknown;
  readonly isError?: boolean;
  readonly _meta?: Readonly<Record<string, unknown>>;
}

/** Makes an errand; its key has to come back. */
export type Make = (key: string, chance: Chance) => Errand;
export type Errands = readonly (readonly [weight: number, make: Make])[];

/** The JSON-RPC code of the error `answerInvalid`. */
const ANSWER_INVALID = -31004;

type Right = Errand["right"];
type Args = Readonly<Record<string, unknown>>;

function make(tool: string, args: Args, right: Right, tellsProgress = false): Errand {
  return { tool, args, right, tellsProgress };
}

const textOf = (result: Result): string => result.content?.[0]?.text ?? "";

/** As scripted.mjs echoes. */
function echo(tool: string, args: Args, tellsProgress = false): Errand {
  const text = JSON.stringify(args);
  const right = (result: Result): boolean =>
    textOf(result) === text && JSON.stringify(result.structuredContent) === text;
  return make(tool, args, right, tellsProgress);
}

/** A text by itself. */
function says(tool: string, args: Args, text: string): Errand {
  return make(tool, args, (result) => textOf(result) === text);
}

function big(key: string, bytes: number): Errand {
  const right = (result: Result): boolean =>
    textOf(result).length === bytes && textOf(result).startsWith(`${key};`.slice(0, bytes));
  return make("big", { seed: key, bytes }, right);
}

/** What scripted.mjs does well. */
export const GOOD: Errands = [
  [30, (key) => echo("echo", { key, n: 1.5 })],
  [10, (key) => echo("tail", { key })],
  [10, (key, chance) => echo("parsed", { key, shape: chance.between(0, 5) })],
  [4, (key) => echo("garbage", { key })],
  [4, (key, chance) => echo("stderr", { key, lines: chance.between(1, 200) })],
  [15, (key, chance) => echo("sleep", { key, ms: chance.between(0, 500) })],
  [8, (key, chance) => echo("progress", progressArgs(key, chance), true)],
  [4, (key, chance) => big(key, 2 ** chance.between(4, 21))],
  [2, (key) => make("error", { key }, { error: -32050 })],
  [2, (key) => make("fail", { key }, (result) => result.isError === true)],
];

function progressArgs(key: string, chance: Chance): Args {
  return { key, steps: chance.between(1, 10), ms: chance.happens(0.3) ? 0 : chance.between(5, 60) };
}

/** All that scripted.mjs does. */
export const SCRIPTED: Errands = [
  ...GOOD,
  [0.6, (key, chance) => make("hang", { key, late: chance.happens(0.5) }, "never")],
  [0.3, (key) => make("die", { key }, "never")],
  [0.3, (key) => make("kill-self", { key }, "never")],
  [0.3, (key) => make("grandchild", { key }, (result) => /^\d+$/.test(textOf(result)))],
];

/** What faulty.mjs does. */
export const FAULTY: Errands = [
  [40, (key) => says("fine", { key }, JSON.stringify({ key }))],
  ...["garbage", "strange", "foreign", "crlf"].map((tool): Errands[number] => [
    3,
    (key) => says(tool, { key }, "fine"),
  ]),
  // The first of its lines is lost if what it wrote before has no line end.
  [3, (key) => make("twice", { key }, (it) => ["first", "second"].includes(textOf(it)))],
  [3, (key) => says("drip", { key, bytes: 200 }, "é".repeat(100))],
  [3, (key) => says("flood", { key, bytes: 200_000, lines: key.endsWith("1") }, "fine")],
  [
    3,
    (key, chance) => {
      const what = chance.pick(["progress", "log", "change", "answer", "batch", "stray"]);
      return says("chatter", { key, what, count: 2000 }, "fine");
    },
  ],
  [2, (key) => make("big", { key, bytes: 3_000_000 }, (it) => textOf(it).length === 3_000_000)],
  // The hub reads the id of half an answer, and ends its call.
  [
    0.5,
    (key, chance) => make("cut", { key, line: chance.happens(0.5) }, { error: ANSWER_INVALID }),
  ],
  [0.5, (key, chance) => make("close", { key, fd: chance.between(0, 1) }, "never")],
  ...["torn", "exit", "fork", "hang", "deaf"].map((tool): Errands[number] => [
    0.5,
    (key) => make(tool, { key }, "never"),
  ]),
];

/** What random-faults.mjs does. */
export const MOODY: Errands = [
  [10, (key) => says("echo", { key }, JSON.stringify({ key }))],
  [
    2,
    (key, chance) => {
      const args = { key, ms: chance.between(0, 300) };
      return says("slow", args, JSON.stringify(args));
    },
  ],
];

/** What a guest does. */
export const GUEST: Errands = [[1, (key) => echo("echo", { key })]];
