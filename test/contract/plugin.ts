import assert from "node:assert/strict";
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { textOf, utf8 } from "../../src/base/bytes.ts";
import { readItem } from "../../src/catalog/listing.ts";
import { type ErrorCode, HubError } from "../../src/base/errors.ts";
import {
  type ApprovalDecision,
  EventBus,
  type EventKind,
  type HubEvent,
} from "../../src/base/hub-events.ts";
import { loadPlugin } from "../../src/plugin/load.ts";
import type { Plugin, ToolInfo, Tool } from "../../src/plugin/plugin.ts";
import { toTool } from "../../src/plugin/listing-rewriter.ts";
import { openPluginServer } from "../../src/plugin/provided-servers.ts";
import { setUpPlugins } from "../../src/plugin/setup.ts";
import type { Transport } from "../../src/transport/transport.ts";
import { turn } from "../fixtures/virtual-clock.ts";
import {
  sendRequest as request,
  callTool,
  initialize,
  type Json,
  listToolNames,
  manifestOf,
  Peer,
  serverStatusOf,
} from "../fixtures/memory-hub.ts";
import { withDeadline, poll } from "../harness/wait.ts";
import { runInOwnProcess } from "./plugin-process.ts";
import {
  answerTo,
  ask,
  formatProblems,
  loadTestedPlugin,
  type Options,
  patienceWith,
  type PluginTestHub,
  send,
  waitForOpenCalls,
  testedPluginSpec,
  type PluginUnderTest,
  withFolder,
  withPlugin,
  withPluginHub,
} from "./plugin-setup.ts";

export type { PluginChange, Options, PluginUnderTest } from "./plugin-setup.ts";

/** One requirement of every plugin; `says` continues a sentence that begins with the plugin's name. */
export interface PluginRequirement {
  readonly sentence: string;
  /**
   * @returns why it does not apply to this plugin, if so
   * @throws if the plugin does not meet it
   */
  check(subject: PluginUnderTest): Promise<string | void>;
}

const NO_TOOL = "with these options clients see none of the suite's tools";
const NO_CALL = "with these options it leaves the calls of the suite's tools alone";
const PLUGIN_FAILED = -31006;

const CHECKS: Readonly<Record<string, PluginRequirement["check"]>> = {
  "can be loaded, and is set up with its options": async (subject) => {
    await withFolder(async (folder) => {
      const equipped = await setUpAsNamed(subject, folder, subject.options);
      if (!equipped.ok) assert.fail(formatProblems(equipped));
      for (const { name } of equipped.plugins.plugins) assert.match(name, NAME);
      await equipped.plugins.dispose();
    });
  },
  "refuses wrong options before it is set up, and says which": async (subject) => {
    const { wrong = [{ "no-such-option": true }] } = subject;
    for (const options of wrong) {
      const reported = JSON.stringify(options);
      const checked = await loadPlugin(testedPluginSpec(subject, options));
      if (checked.ok) assert.fail(`it took ${reported}`);
      for (const { path, message } of checked.problems) {
        assert.equal(path[2], "options", `${reported}: ${message}`);
        assert.doesNotMatch(message, /^cannot be checked/, reported);
      }
    }
  },
  "can be set up and ended without ever being used": (subject) =>
    withPluginHub(subject, () => Promise.resolve()),
  "makes the same of the same list, and changes nothing that it is given": (subject) =>
    withPluginHub(subject, async (testHub) => {
      const { list, servers } = testHub.instance.hooks;
      if (list === undefined) return "it has no list";
      const own = Object.keys(servers ?? {});
      for (const [what, tools] of Object.entries(listings())) {
        for (const server of ["s", ...own]) {
          const before = JSON.stringify(tools);
          const [first, second] = [0, 1].map(() => {
            const made: unknown = testHub.instance.hooks.list?.(Object.freeze([...tools]), server);
            assert.ok(Array.isArray(made), `${what}: list() returned no array`);
            return made.map((tool: unknown) => readTool(tool, what));
          });
          assert.deepEqual(first, second, `${what}: another list from the same one`);
          assert.equal(JSON.stringify(tools), before, `${what}: the list was changed`);
          const names = first?.map((tool) => (JSON.parse(tool) as Tool).name) ?? [];
          assert.equal(new Set(names).size, names.length, `${what}: two tools of one name`);
        }
      }
      return undefined;
    }),
  "answers the calls of tools that it adds to a list": (subject) =>
    withPluginHub(subject, async ({ instance, client, script, tools }) => {
      if (instance.hooks.list === undefined) return "it has no list";
      const listed = (await listToolNames(client)).filter((name) => name.startsWith("s__"));
      const added = listed.filter((name) => !tools.includes(name));
      if (added.length === 0) return "it adds no tools";
      for (const name of added) assertNotFailed(await ask(client, name));
      for (const { params } of script.messagesOf("tools/call")) {
        const isOwn = !added.includes(`s__${String(params?.["name"])}`);
        assert.ok(isOwn, "the server was asked for a tool that it does not have");
      }
      return undefined;
    }),
  "looks at any tool, and leaves it alone or wraps it": (subject) =>
    withPluginHub(subject, async ({ instance }) => {
      const { call } = instance.hooks;
      if (call === undefined) return "it has no call";
      for (const tool of unusualTools()) {
        const next = (): Promise<never> => Promise.reject(new Error("nothing is called here"));
        const own: unknown = instance.hooks.call?.(next, tool);
        assert.equal(typeof own, "function", JSON.stringify(tool.name));
      }
      await turn();
      return undefined;
    }),
  "passes arguments and results on as they are spelled, unless it says that it changes them": (
    subject,
  ) =>
    withEachTool(subject, async ({ client, script }, tool) => {
      const { changes = [] } = subject;
      const result = `{"content":[{"type":"text","text":"${tool}"}],"structuredContent":{"n":1234567890123456789},"f":1.0,"e":1e400, "u":"\\u00fc"}`;
      const args = `{"n":1234567890123456789,"f":1.0,"e":1e400, "u":"\\u00fc","of":"${tool}"}`;
      let came = "";
      script.onCall = (_, text) => {
        came = text;
        return `"result":${result}`;
      };
      const answer = await ask(client, tool, args);
      assertNotFailed(answer);
      const isSame = came.includes(`"arguments":${args}`) || changes.includes("arguments");
      // A plugin that changes results may have answered without the server.
      assert.ok(isSame || (came === "" && changes.includes("results")), `the server got ${came}`);
      const isKept = answer.includes(`"result":${result}`) || changes.includes("results");
      assert.ok(isKept, `the client got ${answer}`);
    }),
  "leaves errors what they are: those of a tool and those of the protocol": (subject) =>
    withEachTool(subject, async ({ client, script }, tool) => {
      const { changes = [] } = subject;
      const errors = [
        '"result":{"content":[{"type":"text","text":"no"}],"isError":true}',
        '"error":{"code":-32001,"message":"no","data":{"n":1.0}}',
      ];
      for (const [i, error] of errors.entries()) {
        script.onCall = () => error;
        const answer = await ask(client, tool, `{"error":${i}}`);
        assertNotFailed(answer);
        if (!changes.includes("results")) assert.ok(answer.includes(error), answer);
      }
    }),
  "copes with any result, however odd or large": (subject) =>
    withEachTool(subject, async ({ client, script }, tool) => {
      for (const [i, result] of unusualResults().entries()) {
        script.onCall = () => `"result":${result}`;
        assertNotFailed(await ask(client, tool, `{"odd":${i}}`), `the result ${shorten(result)}`);
      }
    }),
  "copes with any arguments, however odd or large, and with none": (subject) =>
    withEachTool(subject, async ({ client }, tool) => {
      for (const args of unusualArguments()) {
        const given = args === undefined ? "" : `,"arguments":${args}`;
        const answer = await answerTo(client, send(client, `{"name":"${tool}"${given}}`));
        assertNotFailed(answer, `the arguments ${shorten(args ?? "that are not there")}`);
      }
    }),
  "passes on why there is no answer, or finds one": async (subject) => {
    let code: ErrorCode = "cancelled";
    const inner: Plugin<undefined> = {
      name: "inner",
      setup: () => ({ call: () => () => Promise.reject(new HubError(code, "there is none")) }),
    };
    const ended = ["connectionLost", "callTimeout", "serverStopped", "cancelled"] as const;
    const codes = [...ended, "spawnFailed", "messageTooLarge"] as const;
    const check = async ({ client }: PluginTestHub, tool: string): Promise<void> => {
      for (code of codes) {
        const answer = await ask(client, tool, `{"code":"${code}"}`);
        const { error } = JSON.parse(answer) as Json;
        if (error === undefined || subject.changes?.includes("results")) assertNotFailed(answer);
        else assert.equal(error.code, new HubError(code, "").toRpc().code, `${code}: ${answer}`);
      }
    };
    return withEachTool(subject, check, { inner });
  },
  "bears that the server dies during a call, and goes on with the next one": (subject) =>
    withEachTool(
      subject,
      async ({ client, script }, tool) => {
        const { onCall } = script;
        script.onCall = () => (script.disconnect(), undefined);
        assertNotFailed(await ask(client, tool, '{"dies":1}'));
        script.onCall = onCall;
        assertNotError(subject, await ask(client, tool, '{"dies":0}'), "the call after that");
      },
      { servers: { s: { callTimeout: 5000, reconnect: IMMEDIATE } } },
    ),
  "lets go of calls that are cancelled, asks for nothing more, and goes on with the next one": (
    subject,
  ) =>
    withEachTool(subject, async (testHub, tool) => {
      const { client, script, hub, instance } = testHub;
      const { onCall } = script;
      script.onCall = () => undefined;
      const ids = sendMany(client, tool, 20);
      await turn();
      await turn();
      for (const id of ids) cancel(client, id);
      await poll(
        patienceWith(subject),
        () => `the calls ${JSON.stringify(hub.snapshot().calls)}`,
        () => (hub.snapshot().calls.length === 0 ? true : undefined),
      );
      await waitForOpenCalls(testHub);
      await turn();
      const count = instance.callsAfterEnd;
      assert.equal(count, 0, `next() was called ${count} times for what was cancelled`);
      script.onCall = onCall;
      assertNotError(subject, await ask(client, tool, '{"n":-1}'), "the call after that");
    }),
  "answers each of 100 calls at a time with its own answer": (subject) =>
    withEachTool(subject, async ({ client, script }, tool) => {
      answerInReverse(script);
      const ids = sendMany(client, tool, 100);
      const answers = await Promise.all(ids.map((id) => answerTo(client, id)));
      for (const [n, answer] of answers.entries()) {
        assertNotFailed(answer);
        if (subject.changes?.includes("results")) continue;
        assert.ok(answer.includes(`<${n}>`), `call ${n} got ${answer}`);
      }
    }),
  "does not let the end of one call be the end of another that is like it": (subject) =>
    withEachTool(subject, async ({ client, script }, tool) => {
      const { onCall } = script;
      script.onCall = () => undefined;
      const params = `{"name":"${tool}","arguments":{"n":1}}`;
      const [first, second] = [send(client, params), send(client, params)];
      await turn();
      await turn();
      cancel(client, first);
      await turn();
      script.onCall = onCall;
      for (const { id } of script.messagesOf("tools/call")) {
        script.newestPeer?.send({ jsonrpc: "2.0", id, result: { content: [] } });
      }
      assertNotError(subject, await answerTo(client, second), "the second call");
    }),
  "shares nothing with another of its kind": async (subject) => {
    const loaded = await loadTestedPlugin(subject);
    return withPlugin(subject, loaded, async (one) => {
      const [tool] = one.tools;
      if (tool === undefined) return NO_TOOL;
      const mine = await callThreeTimes(one, tool);
      await withPlugin(subject, loaded, async (other) => {
        assert.deepEqual(other.tools, one.tools, "the second one shows other tools");
        const theirs = await callThreeTimes(other, tool);
        assert.deepEqual(theirs, mine, "the second one asked its server for something else");
      });
      const answer = await ask(one.client, tool, '{"after":true}');
      assertNotError(subject, answer, "a call of the first one since the second has ended");
      return undefined;
    });
  },
  "bears events of every kind": (subject) =>
    withPluginHub(subject, async ({ bus }) => {
      for (const event of Object.values(EVENTS).flat()) bus.emit(event);
      await turn();
    }),
  "gives the secrets that it has, and refuses others without a word of those": (subject) =>
    withPluginHub(subject, async ({ instance, plugins }) => {
      const { secrets = {} } = instance.hooks;
      if (Object.keys(secrets).length === 0) return "it has no secrets";
      const values = Object.values(subject.secrets ?? {}).flatMap((known) => Object.values(known));
      for (const scheme of Object.keys(secrets)) {
        const resolve = async (path: string): Promise<string> =>
          plugins.schemes.get(scheme)?.(path, "s") ?? assert.fail(scheme);
        for (const [path, value] of Object.entries(subject.secrets?.[scheme] ?? {})) {
          assert.equal(await resolve(path), value);
        }
        const odd = ["", "..", "__proto__", "constructor", "a\nb", "x".repeat(10_000)];
        for (const path of ["no/such/path", ...odd]) {
          const refusal = await resolve(path).then(
            () => assert.fail(`${scheme}:${path.slice(0, 20)} has a value`),
            (error: unknown) => error,
          );
          assert.ok(refusal instanceof Error, `${scheme} threw what is no Error`);
          const isTold = values.some((value) => value !== "" && refusal.message.includes(value));
          assert.ok(!isTold, `${scheme} tells a value in its refusal`);
        }
      }
      return undefined;
    }),
  "has servers that shake hands, list, answer all that they are asked, and end": (subject) =>
    withPluginHub(subject, async ({ instance, hub }) => {
      const servers = Object.entries(instance.hooks.servers ?? {});
      if (servers.length === 0) return "it has no servers";
      await hub.settled();
      for (const [name, make] of servers) {
        const [status] = serverStatusOf(hub, name).connections;
        assert.equal(status?.state, "connected", `${name} in the hub`);
        const links = [
          await openPluginServer(make, undefined),
          await openPluginServer(make, undefined),
        ] as const;
        await checkServerWithTwoClients(name, links, patienceWith(subject));
      }
      return undefined;
    }),
  "keeps what it writes into its folder for the user alone": (subject) =>
    withPluginHub(subject, async ({ hub, client, tools, stateFolder }) => {
      for (const tool of tools) assertNotFailed(await ask(client, tool));
      await hub.close();
      const open = await findAccessible(stateFolder);
      assert.deepEqual(open, [], "others may read or change it (mode 0600, folders 0700)");
    }),
  "lets go of calls that run when the hub ends": (subject) =>
    withEachTool(subject, async (testHub, tool) => {
      const { client, script, hub } = testHub;
      script.onCall = () => undefined;
      sendMany(client, tool, 20);
      await turn();
      await hub.close();
      await waitForOpenCalls(testHub);
    }),
};

const LEAVES_NOTHING =
  "writes nothing to stdout, leaves the process as it was, and nothing behind that keeps it running";

/** The requirements of all plugins. */
export const PLUGIN_REQUIREMENTS: readonly PluginRequirement[] = [
  ...Object.entries(CHECKS).map(([sentence, check]) => ({ sentence, check })),
  { sentence: LEAVES_NOTHING, check: (subject) => runInOwnProcess([subject]) },
];

/** The contract of every plugin, for some. A file or package is named as in a manifest in `folder`. */
export function pluginContract(subjects: Readonly<Record<string, PluginUnderTest>>): void {
  for (const [name, subject] of Object.entries(subjects)) {
    describe(`the plugin ${name}`, () => {
      for (const [sentence, check] of Object.entries(CHECKS)) {
        it(sentence, async () => {
          await check(subject);
        });
      }
    });
  }
  it(`each of the plugins ${Object.keys(subjects).join(", ")} ${LEAVES_NOTHING}`, () =>
    runInOwnProcess(Object.values(subjects)));
}

/** Reconnect settings without delay. */
const IMMEDIATE = { policy: "immediate", base: 1, max: 1, jitter: 0, maxAttempts: 0 } as const;

const NAME = /^[A-Za-z0-9_-]{1,64}$/;
const numbers = (count: number): number[] => Array.from({ length: count }, (_, n) => n);

function setUpAsNamed(
  subject: PluginUnderTest,
  stateFolder: string,
  options: Options | undefined,
): ReturnType<typeof setUpPlugins> {
  const manifest = { ...manifestOf({}), plugins: [testedPluginSpec(subject, options)] };
  return setUpPlugins(manifest, { bus: new EventBus(), env: { HOME: stateFolder }, stateFolder });
}

/** Runs `check` with each tool that clients see and whose calls the plugin wraps, each time on a new hub. */
async function withEachTool(
  subject: PluginUnderTest,
  check: (testHub: PluginTestHub, tool: string) => Promise<void>,
  settings: Parameters<typeof withPluginHub>[2] = {},
): Promise<string | void> {
  const loaded = await loadTestedPlugin(subject);
  let wrapped: readonly string[] | undefined;
  for (let i = 0; wrapped === undefined || i < wrapped.length; i++) {
    const checkNth = async (testHub: PluginTestHub): Promise<readonly string[]> => {
      const tool = testHub.wrapped[i];
      if (tool !== undefined) await check(testHub, tool);
      return testHub.wrapped;
    };
    const found = await withPlugin(subject, loaded, checkNth, settings);
    wrapped ??= found;
  }
  return wrapped.length === 0 ? NO_CALL : undefined;
}

/** Throws if the answer is a plugin failure; an answer of the server or of the plugin is allowed. */
function assertNotFailed(answer: string, what?: string): void {
  const { result, error } = JSON.parse(answer) as Json;
  assert.ok(result !== undefined || error !== undefined, answer);
  if (error?.code !== PLUGIN_FAILED) return;
  assert.fail(what === undefined ? error.message : `${what}: ${error.message}`);
}

const shorten = (text: string): string => (text.length > 100 ? `${text.slice(0, 100)}…` : text);

/** Throws if an answer is an error although the server's is not, unless the plugin declares that it changes results. */
function assertNotError({ changes }: PluginUnderTest, answer: string, what: string): void {
  assertNotFailed(answer);
  if (changes?.includes("results")) return;
  const { result } = JSON.parse(answer) as Json;
  assert.ok(result !== undefined && result["isError"] !== true, `${what} got ${answer}`);
}

/** Sends so many calls, each with its number. @returns their ids */
function sendMany(client: Peer, tool: string, count: number): readonly string[] {
  return numbers(count).map((n) => send(client, `{"name":"${tool}","arguments":{"n":${n}}}`));
}

function cancel(client: Peer, requestId: string): void {
  client.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId } });
}

/** At the end of each turn the server answers the calls received so far, the last one first. */
function answerInReverse(script: PluginTestHub["script"]): void {
  const waiting: (() => void)[] = [];
  script.onCall = ({ id, params }) => {
    const n = String((params?.["arguments"] as { n?: unknown } | undefined)?.n);
    const content = [{ type: "text", text: `<${n}>` }];
    if (waiting.length === 0) {
      setTimeout(() => {
        for (const answerCall of waiting.splice(0).toReversed()) answerCall();
      }, 0);
    }
    const { newestPeer: peer } = script;
    waiting.push(() => peer?.send({ jsonrpc: "2.0", id, result: { content } }));
    return undefined;
  };
}

/** Makes the same call three times. @returns the params that the server received */
async function callThreeTimes(
  { client, script }: PluginTestHub,
  tool: string,
): Promise<readonly unknown[]> {
  for (let i = 0; i < 3; i++) assertNotFailed(await ask(client, tool, '{"n":1}'));
  return script.messagesOf("tools/call").map(({ params }) => params);
}

/** Checks that a listed tool is one that a client can read. @returns its JSON text */
function readTool(tool: unknown, what: string): string {
  const text = JSON.stringify(tool ?? null);
  const item = readItem(utf8(text), "tools");
  assert.ok(item, `${what}: list() returned ${text.slice(0, 100)}, which is no tool with a name`);
  return textOf(item.bytes);
}

function parseTools(texts: readonly string[]): readonly Tool[] {
  return texts.map((text) => {
    const item = readItem(utf8(text), "tools");
    assert.ok(item, text);
    return toTool(item);
  });
}

const DEEP = 1000;
/** More characters than a function takes arguments, and than plugins commonly let pass. */
const LARGE = 100_000;
const deep = `${'{"properties":{"x":'.repeat(DEEP)}{}${"}}".repeat(DEEP)}`;
const SCHEMA = '"inputSchema":{"type":"object"}';

function listings(): Readonly<Record<string, readonly Tool[]>> {
  const odd = [
    '{"name":"a"}',
    '{"name":"b","description":null,"inputSchema":null,"outputSchema":null,"annotations":null}',
    '{"name":"c","description":1,"inputSchema":[],"annotations":"none","icons":{},"_meta":[]}',
    '{"name":"d","inputSchema":true,"annotations":{"readOnlyHint":"yes","title":1}}',
    `{"name":"e","inputSchema":{"$ref":"#"}}`,
    '{"name":"f","inputSchema":{"type":["object","null"],"properties":null,"required":"x"}}',
    '{"name":"__proto__","inputSchema":{"type":"object","properties":{"__proto__":{"type":"string"}}}}',
    '{"name":"constructor","__proto__":{"polluted":true},"inputSchema":{"type":"object"}}',
    '{"name":"ü ","description":"\\u0000\\ud800","inputSchema":{"type":"object","properties":{"":{}}}}',
    `{"name":"${"n".repeat(1000)}",${SCHEMA}}`,
  ];
  const long = "long ".repeat(LARGE / 5);
  const many = numbers(500).map((n) => `{"name":"t-${n}","description":"Does ${n}.",${SCHEMA}}`);
  return {
    "no tools": [],
    "odd tools": parseTools(odd),
    "a huge description": parseTools([`{"name":"huge","description":"${long}",${SCHEMA}}`]),
    "a deep schema": parseTools([`{"name":"nested","inputSchema":${deep}}`]),
    "500 tools": parseTools(many),
  };
}

function unusualTools(): readonly ToolInfo[] {
  const { "500 tools": _, ...others } = listings();
  const definitions = Object.values(others).flat();
  return definitions.flatMap((definition) => {
    const { name } = definition;
    const tool = { server: "s", name, exposedName: `s__${name}`, definition };
    return (["shared", "perClient"] as const).map((isolation) => ({ ...tool, isolation }));
  });
}

function unusualResults(): readonly string[] {
  const text = (size: number): string =>
    `{"type":"text","text":"${"0123456789".repeat(size / 10)}"}`;
  const small = ["{}", "null", "[]", '"text"', '{"content":null}', '{"content":{}}'];
  return [
    ...small,
    '{"content":[]}',
    '{"content":[null,1,"x",[],{}]}',
    '{"content":[{"type":"text"},{"type":"text","text":1},{"type":1},{"type":"unknown","x":1}]}',
    '{"content":[{"type":"image","data":"","mimeType":"image/png"},{"type":"resource"},{"type":"resource","resource":{"uri":1}}]}',
    '{"isError":"yes","content":[],"structuredContent":[1]}',
    '{"content":[],"content":[{"type":"text","text":"twice"}],"isError":true,"isError":false}',
    '{"__proto__":{"isError":true},"content":[{"type":"text","text":"\\ud800\\u0000"}]}',
    `{"content":[],"structuredContent":${deep}}`,
    `{"content":[${text(LARGE)}]}`,
    `{"content":[${text(LARGE)}],"structuredContent":{"all":"${"x".repeat(LARGE)}"},"isError":true}`,
    `{"content":[${Array.from({ length: 2000 }, () => text(100)).join()}]}`,
    `{"content":[{"type":"image","mimeType":"image/png","data":"${"AAAA".repeat(LARGE / 4)}"}]}`,
  ];
}

function unusualArguments(): readonly (string | undefined)[] {
  const small = [undefined, "null", "{}", "{ }", "[]", "1", '"text"', '{"a":1,"a":2}'];
  return [
    ...small,
    '{"__proto__":{"polluted":true},"constructor":null,"":0}',
    '{"text":"\\ud800\\u0000","n":-0,"e":1e-400}',
    `{"deep":${deep}}`,
    `{"long":"${"x".repeat(LARGE)}"}`,
  ];
}

const cause = new HubError("connectionLost", "It has ended.");
const LOST = { server: "t", cause };
const CALL = { call: 1, client: "c", server: "s", tool: "plain", name: "s__plain", startedAt: 1 };

const DECISIONS: readonly ApprovalDecision[] = ["once", "deny"];
const QUESTION = {
  id: "1",
  call: 1,
  client: undefined,
  clientName: "",
  server: "s",
  tool: "plain",
  name: "s__plain",
  argumentsShown: "{}",
  reason: "It may write.",
  choices: DECISIONS,
  askedAt: 1,
} as const;
const DECIDED = { decision: "deny", remembered: false } as const;

/** Every kind of event, in all of its forms. */
const EVENTS: { readonly [Kind in EventKind]: readonly Extract<HubEvent, { kind: Kind }>[] } = {
  server: (["added", "changed", "removed"] as const).map((change) => ({
    kind: "server",
    server: "t",
    change,
  })),
  state: [
    { kind: "state", server: "s", from: "idle", to: "connecting", attempt: 1 },
    { kind: "state", ...LOST, client: "c9", from: "connected", to: "reconnecting", retryAt: 1 },
    { kind: "state", ...LOST, from: "connecting", to: "failed" },
    { kind: "state", server: "s", from: "connecting", to: "connected" },
  ],
  log: [
    { kind: "log", level: "debug", source: "hub", text: "" },
    { kind: "log", level: "error", source: "stderr", server: "s", text: "two\nlines" },
  ],
  callStarted: [{ kind: "callStarted", ...CALL }],
  callFinished: [
    { kind: "callFinished", ...CALL, duration: 1, outcome: "answered", failed: undefined },
    { kind: "callFinished", ...CALL, duration: 0, outcome: "failed", failed: true, cause },
    { kind: "callFinished", ...CALL, duration: 0, outcome: "denied", failed: false, cause },
  ],
  callCancelled: (["client", "deadline", "disconnect", "shutdown", "operator"] as const).map(
    (by) => ({ kind: "callCancelled", ...CALL, duration: 1, by }),
  ),
  calls: [
    { kind: "calls", duration: 500, ended: 9, failed: 1, denied: 0, cancelled: 0, last: [] },
    {
      kind: "calls",
      duration: 1,
      ended: 1,
      failed: 0,
      denied: 0,
      cancelled: 0,
      last: [{ ...CALL, duration: 1 }],
    },
  ],
  limit: [
    {
      kind: "limit",
      limit: "rate",
      of: "tool",
      server: "s",
      tool: "x_*",
      retryAfter: 1000,
      text: "Over.",
    },
  ],
  catalog: [
    { kind: "catalog", added: [], removed: [], altered: [] },
    { kind: "catalog", added: ["t__a"], removed: ["s__plain"], altered: ["s__reader", "none"] },
  ],
  alert: (["toolsChanged", "disconnected"] as const).map((kind, i) => ({
    kind: "alert",
    raised: i === 0,
    alert: { id: `${i}`, at: 1, kind, server: "s", text: i === 0 ? "Look." : "" },
  })),
  pins: [{ kind: "pins", server: "a", pending: 1 }],
  approval: [
    { kind: "approval", change: "asked", ...QUESTION },
    { kind: "approval", change: "decided", ...QUESTION, ...DECIDED, by: "timeout" },
    { kind: "approval", change: "decided", ...QUESTION, ...DECIDED, by: "rule", remembered: true },
    { kind: "approval", change: "withdrawn", ...QUESTION },
  ],
  mode: [
    { kind: "mode", from: "full", to: "review" },
    { kind: "mode", client: "client-1", from: "review", to: "full" },
  ],
  fleet: [
    { kind: "fleet", change: "joined", machine: "h2", servers: ["git"] },
    { kind: "fleet", change: "left", machine: "h2", servers: ["git"], reason: "was killed" },
  ],
  client: (["joined", "changed", "left"] as const).map((change) => ({
    kind: "client",
    client: "client-1",
    change,
    ...(change === "changed" && { name: "editor", version: "1" }),
  })),
  manifest: [
    {
      kind: "manifest",
      outcome: "reloaded",
      servers: 0,
      added: [],
      changed: [],
      removed: [],
    },
    { kind: "manifest", outcome: "refused", problems: "toolmux.toml:1:1: no" },
  ],
};

/** Paths below a folder that others than the owner can access. */
async function findAccessible(folder: string): Promise<readonly string[]> {
  const paths = await readdir(folder, { recursive: true });
  const modes = await Promise.all(paths.map(async (path) => (await stat(join(folder, path))).mode));
  return paths.filter((_, i) => ((modes[i] ?? 0) & 0o077) !== 0);
}

/** Two clients of a plugin's server: each gets its own answers, and closing one leaves the other open. */
async function checkServerWithTwoClients(
  name: string,
  links: readonly [Transport, Transport],
  patience: number,
): Promise<void> {
  const inTime = <T>(what: string, promise: Promise<T>): Promise<T> =>
    withDeadline(
      patience,
      () => `${name} to ${what}`,
      (resolve, reject) => void promise.then(resolve, reject),
    );
  const ping = async (peer: Peer): Promise<void> => {
    const { result } = await inTime("answer a ping", request(peer, "ping"));
    assert.deepEqual(result, {});
  };
  const [first, second] = [new Peer(links[0]), new Peer(links[1])];
  for (const peer of [first, second]) {
    await inTime("shake hands", initialize(peer));
    const { result } = await peer.find(({ id, method }) => id === "init" && method === undefined);
    assert.equal(typeof result?.["protocolVersion"], "string", `${name}: initialize`);
    peer.send({ jsonrpc: "2.0", method: "notifications/initialized" });
    await ping(peer);
    const { result: listed } = await inTime("list", request(peer, "tools/list"));
    for (const tool of (listed?.["tools"] as Tool[] | undefined) ?? []) {
      readTool(tool, name);
      assert.equal(typeof tool.inputSchema, "object", `${name}: ${tool.name} has no inputSchema`);
    }
    const unknown = await inTime("refuse a tool", callTool(peer, "no-such-tool"));
    assert.ok(unknown.error ?? unknown.result?.["isError"], `${name} has a tool that it has not`);
    const refused = await inTime("refuse a method", request(peer, "no/such/method"));
    assert.ok(refused.error, `${name} has a method that there is not`);
  }
  await inTime("end", first.transport.close());
  await ping(second);
  await inTime("end", second.transport.close());
}
