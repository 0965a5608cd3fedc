import assert from "node:assert/strict";
import process from "node:process";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import type { PluginUse } from "../fixtures/plugin-hub.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  answerTo,
  callPlugin,
  openPluginHub,
  pluginOf,
  requestTextsTo,
  serverOf,
} from "./plugin-hub.ts";

const SEED = process.env["TOOLMUX_TEST_SEED"];
const RUNS = 60;

/** JSON text with whitespace, escapes and numbers that JSON.stringify would not write. */
const space = fc.constantFrom("", "", "", " ", "\t", "\r");
const scalar = fc.oneof(
  fc.constantFrom("1.0", "1e2", "-0", "0.10", "12345678901234567890", "null", "true", "1E+2"),
  fc.constantFrom('"\\u0041"', '"\\/"', '"é"', '"\\ud800"', '"\\u2028"', '""', '"\\"}"'),
  fc.string().map((text) => JSON.stringify(text)),
);
const KEYS = ['"a"', '"b"', '"\\u0061"', '"id"', '"isError"', '"result"', '"__proto__"'];
const key = fc.constantFrom(...KEYS);
const { object } = fc.letrec<{ value: string; object: string; array: string }>((tie) => ({
  value: fc.oneof({ maxDepth: 3 }, scalar, tie("object"), tie("array")),
  array: fc
    .array(fc.tuple(space, tie("value"), space), { maxLength: 3 })
    .map((items) => `[${items.map((parts) => parts.join("")).join(",")}]`),
  object: fc
    .array(fc.tuple(space, key, space, tie("value"), space), { maxLength: 3 })
    .map((members) => {
      const texts = members.map(([a, name, b, value, c]) => `${a}${name}${b}:${b}${value}${c}`);
      return `{${texts.join(",")}}`;
    }),
}));

/** Plugin actions that must change nothing. */
const KINDS = {
  nothing: (name) => pluginOf(name, {}),
  list: (name) => pluginOf(name, { list: (items) => items.slice() }),
  unwrapped: (name) => pluginOf(name, { call: (next) => next }),
  passed: (name) => callPlugin(name, (given, next) => next(given)),
  awaited: (name) => callPlugin(name, async (given, next) => next(given)),
  later: (name) =>
    callPlugin(name, async (given, next) => {
      await turn();
      return next(given);
    }),
  limited: (name) =>
    callPlugin(name, (given, next) => next(given.with({ signal: new AbortController().signal }))),
  unchanged: (name) => callPlugin(name, (given, next) => next(given.with({}))),
  looked: (name) =>
    callPlugin(name, async (given, next) => {
      void given.arguments;
      const answer = await next(given);
      void [answer.value, answer.isError, answer.json];
      return answer;
    }),
  answered: (name) =>
    callPlugin(name, async (given, next) => {
      const answer = await next(given);
      return answer.kind === "error" ? answer : given.answer(answer.json);
    }),
  sent: (name) =>
    callPlugin(name, (given, next) => next(given.with({ arguments: given.argumentsJson }))),
} as const satisfies Readonly<Record<string, (name: string) => PluginUse>>;
type Kind = keyof typeof KINDS;

/** A member of a call's params. */
type Member = readonly [key: "name" | "arguments" | "other", spelled: string, value: string];

const spelled = fc.constantFrom('"arguments"', '"argu\\u006dents"');
const member: fc.Arbitrary<Member> = fc.oneof(
  fc
    .tuple(spelled, fc.oneof(object, fc.constant("null")))
    .map(([name, value]): Member => ["arguments", name, value]),
  object.map((value): Member => ["other", '"x"', value]),
);
const params = fc
  .tuple(fc.array(member, { maxLength: 3 }), fc.array(member, { maxLength: 1 }))
  .map(([before, after]): Member[] => [...before, ["name", '"name"', '"s__t"'], ...after]);

const write = (members: readonly Member[]): string =>
  `{${members.map(([, name, value]) => `${name}:${value}`).join(",")}}`;

/** The text of an object as a plugin writes it. */
const inLine = (text: string): string => text.replace(/[\r\n]/g, " ");

/** The message that the server receives, without its id. */
function expected(members: readonly Member[], isSent: boolean): string {
  const own = members.map((one): Member => (one[0] === "name" ? [one[0], one[1], '"t"'] : one));
  if (!isSent) return write(own);
  const last = own.findLast(([kind]) => kind === "arguments");
  if (last === undefined) return write([["arguments", '"arguments"', "{}"], ...own]);
  const value = last[2] === "null" ? "{}" : inLine(last[2]);
  return write(own.map((one) => (one[0] === "arguments" ? [one[0], one[1], value] : one)));
}

const SHAPES: readonly ((id: unknown, body: string) => string)[] = [
  (id, body) => `{"jsonrpc":"2.0","id":${String(id)},${body}}`,
  (id, body) => `{${body},"jsonrpc":"2.0","id":${String(id)}}`,
  (id, body) => `{ "id" : ${String(id)}, ${body} ,"jsonrpc":"2.0"}`,
];

/** Sends one call through a hub with these plugins. @returns what the server and the client received */
async function run(
  kinds: readonly Kind[],
  members: readonly Member[],
  answer: (id: unknown) => string,
): Promise<{ readonly request: string; readonly response: string }> {
  const script = serverOf(({ id }) => (script.newestPeer?.send(answer(id)), undefined), "t");
  const plugins = kinds.map((kind, i) => KINDS[kind](`p${i}`));
  const { client, hub } = await openPluginHub(plugins, script);
  const text = `{"jsonrpc":"2.0","id":"me","method":"tools/call","params":${write(members)}}`;
  await answerTo(client, "me", text);
  await hub.close();
  const [request = "", ...more] = requestTextsTo(script);
  assert.deepEqual(more, []);
  const response = client.received.find((line) => /"id" ?: ?"me"/.test(line)) ?? "";
  return { request: request.replace(/"id":\d+/, '"id":0'), response };
}

describe("plugins that change nothing", () => {
  it("leave every byte of a call and of its answer as it was, whatever they do for that", async () => {
    const given = fc.record({
      kinds: fc.array(fc.constantFrom(...(Object.keys(KINDS) as Kind[])), { maxLength: 5 }),
      members: params,
      body: object,
      form: fc.constantFrom(...SHAPES),
      what: fc.constantFrom("result", "error"),
    });
    await fc.assert(
      fc.asyncProperty(given, async ({ kinds, members, body, form, what }) => {
        // An error without a code or a message gets both before any plugin sees it.
        const whole = what === "error" ? `{"code":1,"message":"m","data":${body}}` : body;
        const answer = (id: unknown): string => form(id, `"${what}":${whole}`);
        const bare = await run([], members, answer);
        const { request, response } = await run(kinds, members, answer);
        const head = '{"jsonrpc":"2.0","id":0,"method":"tools/call","params":';
        const isSent = kinds.includes("sent");
        // The hub replaces a carriage return between values by a space: some readers take it for a line end.
        assert.equal(inLine(request), inLine(`${head}${expected(members, isSent)}}`));
        if (!isSent) assert.equal(request, bare.request);
        const isMade = what === "result" && kinds.includes("answered");
        const made = `{"jsonrpc":"2.0","result":${inLine(body)},"id":"me"}`;
        assert.equal(response, isMade ? made : bare.response);
        assert.ok(inLine(response).includes(inLine(body)));
      }),
      { numRuns: RUNS, ...(SEED !== undefined && { seed: Number(SEED) }) },
    );
  });
});
