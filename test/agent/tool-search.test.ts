import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { AgentEvent } from "../../src/agent/events.ts";
import { AgentFileToolbox, ownServerName } from "../../src/agent/agent-file-toolbox.ts";
import type { ModelRequest } from "../../src/agent/model.ts";
import {
  AgentToolSearch,
  agentToolSettings,
  definitionTokens,
} from "../../src/agent/tool-search.ts";
import type { AgentTool } from "../../src/agent/toolbox.ts";
import type { AgentSpec } from "../../src/manifest/agents.ts";
import { HUB_DEFAULTS, TOOL_SEARCH_DEFAULTS } from "../../src/manifest/manifest.ts";
import {
  DescribedToolbox,
  type AgentSetup,
  say,
  setUpAgents,
  textResult,
  type Turn,
  TurnModel,
  use,
} from "../fixtures/agents.ts";
import { turn } from "../fixtures/virtual-clock.ts";

const TOOLS = {
  git__get_log: "Shows the commits of a repository.",
  git__push: "Sends commits to a remote repository.",
  mail__send: "Sends an e-mail.",
  mail__get_inbox: "Lists the e-mails that have arrived.",
  secret__get_salary: "Shows the salary of a person.",
};

const SEARCH = "search_tools,describe_tools,call_tool";

function settings(budget: number, always?: string) {
  return {
    budget,
    search: {
      ...TOOL_SEARCH_DEFAULTS,
      ...(always !== undefined && { always: { tools: [always] } }),
    },
  };
}

interface Tried {
  readonly events: readonly AgentEvent[];
  readonly model: TurnModel;
  readonly toolbox: DescribedToolbox;
  readonly setup: AgentSetup;
}

/** Runs an agent that searches for its tools, unless the spec says something else. */
async function tryOut(
  turns: readonly Turn[],
  spec: Partial<AgentSpec> = {},
  {
    toolbox = new DescribedToolbox(TOOLS),
    budget = 10_000,
    always,
  }: {
    readonly toolbox?: DescribedToolbox;
    readonly budget?: number;
    readonly always?: string;
  } = {},
  runOptions: Parameters<AgentSetup["run"]>[1] = {},
): Promise<Tried> {
  const model = new TurnModel([...turns, say("Done.")]);
  const specs = { main: { expose: "search" as const, ...spec } };
  const toolSettings = settings(budget, always);
  const setup = setUpAgents({ main: model }, toolbox, specs, { toolSettings });
  const events = await setup.run("Do it.", runOptions);
  return { events, model, toolbox, setup };
}

function namesOf(request: ModelRequest | undefined): string {
  return (request?.tools ?? []).map(({ name }) => name).join();
}

function callTool(name: string, args: unknown = {}): Turn {
  return use(["call_tool", JSON.stringify({ name, arguments: args })]);
}

/** The steps of calls, as events name them. */
function callsOf(events: readonly AgentEvent[]): readonly unknown[] {
  return events.flatMap((event) => {
    if (event.type === "toolCallStart")
      return [["start", event.toolName, event.server, event.arguments, event.via]];
    if (event.type === "toolExecuted")
      return [["end", event.toolName, event.success, event.error, event.via]];
    return [];
  });
}

function endOf(events: readonly AgentEvent[]): AgentEvent {
  return events.at(-1) ?? assert.fail("there are no events");
}

describe("an agent with many tools", () => {
  it("gets tools for searching them if its own take more than the budget, and all of them up to it", async () => {
    const tokens = definitionTokens(new DescribedToolbox(TOOLS).listed);
    const all = Object.keys(TOOLS).join();
    for (const [expose, budget, expected] of [
      ["auto", tokens, all],
      ["auto", tokens - 1, SEARCH],
      ["direct", 0, all],
      ["search", 1_000_000, SEARCH],
    ] as const) {
      const { model } = await tryOut([], { expose }, { budget });
      assert.equal(namesOf(model.requests[0]), expected, `${expose} ${budget}`);
      assert.equal(/search_tools/.test(model.requests[0]?.instruction ?? ""), expected === SEARCH);
    }
    const { budget } = agentToolSettings({ hub: HUB_DEFAULTS });
    assert.equal(budget, 10_000);
    const many = Object.fromEntries(
      Array.from({ length: 400 }, (_, at) => [`s__t${at}`, "Does something. ".repeat(5)]),
    );
    const big = new TurnModel([say("x")]);
    await setUpAgents({ main: big }, new DescribedToolbox(many)).run();
    assert.equal(namesOf(big.requests[0]), SEARCH);
  });

  it("has no tools for searching without a filter, and the loop's own and always listed ones besides", async () => {
    const none = await tryOut([], { tools: undefined });
    assert.equal(namesOf(none.model.requests[0]), "");
    const some = await tryOut([], { subAgents: ["main"], handoffs: ["main"] }, { always: "send" });
    assert.equal(namesOf(some.model.requests[0]), `${SEARCH},mail__send,handoff,transfer_task`);
    const inner = new DescribedToolbox(TOOLS);
    const model = new TurnModel([use(["call_tool", '{"name":"think"}']), say("x")]);
    const tools = { or: ["all" as const, { servers: [ownServerName("built-in")] }] };
    const specs = { main: { expose: "search" as const, tools } };
    await setUpAgents({ main: model }, new AgentFileToolbox(inner, undefined), specs).run();
    assert.equal(
      namesOf(model.requests[0]),
      `${SEARCH},create_todo,create_todos,list_todos,think,update_todo,update_todos`,
    );
    assert.match(model.lastResults[0] ?? "", /"think" is called by its own name/);
  });

  it("decides at the start of a run and keeps it, whatever the servers list then", async () => {
    const toolbox = new DescribedToolbox(TOOLS);
    const few = toolbox.listed.slice(0, 1);
    const budget = definitionTokens(few);
    toolbox.answer = () => {
      toolbox.listed = few;
      return undefined;
    };
    const { model, setup } = await tryOut(
      [callTool("git__get_log"), callTool("git__get_log", { value: "b" }), say("first")],
      { expose: "auto" },
      { toolbox, budget },
    );
    assert.deepEqual(model.requests.map(namesOf), [SEARCH, SEARCH, SEARCH]);
    assert.equal(new Set(model.requests.map(({ instruction }) => instruction)).size, 1);
    await setup.run("Again.");
    assert.equal(namesOf(model.requests.at(-1)), "git__get_log");
  });

  it("answers the search also in a later run that lists all tools, but not for an agent that never searches", async () => {
    const query = use(["search_tools", '{"query":"send an e-mail"}']);
    const auto = await tryOut([query, callTool("mail__send")], { expose: "auto" });
    assert.equal(namesOf(auto.model.requests[0]), Object.keys(TOOLS).join());
    assert.match(auto.model.lastResults[0] ?? "", /"mail__send"/);
    assert.equal(auto.toolbox.calls[0]?.name, "mail__send");
    const direct = await tryOut([query], { expose: "direct" });
    assert.match(direct.model.lastResults[0] ?? "", /There is no tool "search_tools"/);
  });

  it("finds, describes and calls its tools; events name the real tool", async () => {
    const { events, model, toolbox } = await tryOut([
      use(["search_tools", '{"query":"send an e-mail","limit":1}']),
      use(["describe_tools", '{"names":["mail.send"]}']),
      callTool("mail__send", { value: "s3cret" }),
      use(["git__push", "{}"]),
    ]);
    const [found, described, called] = model.lastResults;
    assert.deepEqual(JSON.parse(found ?? ""), {
      tools: [
        {
          name: "mail__send",
          server: "mail",
          description: "Sends an e-mail.",
          signature: "{ value?: string }",
        },
      ],
      matches: JSON.parse(found ?? "").matches as number,
      available: 5,
    });
    assert.partialDeepStrictEqual(JSON.parse(described ?? ""), {
      tools: [{ name: "mail__send", description: "Sends an e-mail." }],
      notFound: [],
    });
    assert.equal(called, 'mail__send {"value":"s3cret"}');
    assert.deepEqual(toolbox.calls, [
      { name: "mail__send", args: '{"value":"s3cret"}' },
      { name: "git__push", args: "{}" },
    ]);
    assert.deepEqual(callsOf(events).slice(0, 2), [
      ["start", "search_tools", undefined, '{"query":"send an e-mail","limit":1}', undefined],
      ["end", "search_tools", true, undefined, undefined],
    ]);
    assert.deepEqual(callsOf(events).slice(4), [
      ["start", "mail__send", "mail", '{"value":"***"}', "call_tool"],
      ["end", "mail__send", true, undefined, "call_tool"],
      ["start", "git__push", "git", "{}", undefined],
      ["end", "git__push", true, undefined, undefined],
    ]);
    const end = endOf(events);
    assert.equal(end.type === "runComplete" && end.toolCalls, 4);
  });

  it("calls a tool in all forms in which models write calls, and none for a name that is only similar", async () => {
    for (const [args, expected] of [
      ['{"name":"mail__send","arguments":{"value":"x"}}', '{"value":"x"}'],
      ['{"name":"mail__send","arguments":"{\\"value\\":\\"x\\"}"}', '{"value":"x"}'],
      ['{"name":"mail:send","arguments":{"value":"x"}}', '{"value":"x"}'],
      ['{"name":"select:mail.send"}', "{}"],
      ['{"name":"MAIL/SEND","arguments":null}', "{}"],
      ['{"name":"send"}', "{}"],
      [
        '{"name":"call_tool","arguments":{"name":"mail__send","arguments":{"value":"x"}}}',
        '{"value":"x"}',
      ],
      [' {"name":"mail__send","arguments":{"value":1.0}}\n', '{"value":1.0}'],
      ['{"name":"mail__sned"}', /There is no tool "mail__sned". Similar: "mail__send"/],
      ['{"name":"mail__send","value":"x"}', /its arguments must be an object.*value\?: string/],
      ['{"name":"mail__send","arguments":[1]}', /its arguments must be an object/],
      ["{}", /needs the member name/],
      ["", /needs the member name/],
      ["{", /not a JSON object/],
      ['{"name":"search_tools"}', /is called by its own name/],
    ] as const) {
      const { toolbox, model, events } = await tryOut([use(["call_tool", args])]);
      if (typeof expected === "string") {
        assert.deepEqual(toolbox.calls, [{ name: "mail__send", args: expected }], args);
      } else {
        assert.deepEqual(toolbox.calls, [], args);
        assert.match(model.lastResults[0] ?? "", expected);
        assert.equal(endOf(events).type, "runComplete");
      }
    }
  });

  it("knows nothing of tools that its filter, a mode or the caller's mode hides", async () => {
    const isVisible = ({ server }: AgentTool): boolean => server !== "secret";
    const hidden: readonly [Partial<AgentSpec>, Parameters<AgentSetup["run"]>[1]][] = [
      [{ tools: { not: { servers: ["secret"] } } }, {}],
      [{ respectMode: true }, { isVisible }],
    ];
    const turns = [
      use(["search_tools", '{"query":"salary of a person"}']),
      use(["search_tools", '{"query":"salary","server":"secret"}']),
      use(["describe_tools", '{"names":["secret__get_salary"]}']),
      callTool("secret__get_salary"),
      callTool("get_salary"),
    ];
    for (const [spec, options] of hidden) {
      const with5 = await tryOut(turns, spec, {}, options);
      const { secret__get_salary: _, ...visible } = TOOLS;
      const with4 = await tryOut(turns, {}, { toolbox: new DescribedToolbox(visible) });
      assert.deepEqual(with5.model.lastResults, with4.model.lastResults);
      assert.deepEqual(with5.model.requests[0]?.instruction, with4.model.requests[0]?.instruction);
      assert.deepEqual(with5.toolbox.calls, []);
    }
    const agents = new DescribedToolbox({ ...TOOLS, agents__invoke: "Invokes an agent." });
    const query = use(["search_tools", '{"query":"invoke an agent"}']);
    const without = await tryOut([query], {}, { toolbox: agents });
    assert.doesNotMatch(without.model.lastResults[0] ?? "", /agents__invoke/);
    const allowed = await tryOut([query], { allowAgents: true }, { toolbox: agents });
    assert.match(allowed.model.lastResults[0] ?? "", /agents__invoke/);
  });

  it("counts a call once, repeats a failed call, and ends a run that repeats itself, as for direct calls", async () => {
    const limited = await tryOut(
      [use(["search_tools", '{"query":"x"}']), callTool("mail__send"), callTool("git__push")],
      { maxToolCalls: 2 },
    );
    const end = endOf(limited.events);
    assert.equal(end.type === "error" && end.code, "toolCallLimit");
    assert.match(end.type === "error" ? end.message : "", /call git__push after 2 calls/);
    const forms = ["mail__send", "mail:send", "send", "mail.send", "mail/send"];
    const repeated = await tryOut(forms.map((name) => callTool(name, { value: "x" })));
    const last = endOf(repeated.events);
    assert.equal(last.type === "error" && last.code, "repeatedCalls");
    const flaky = new DescribedToolbox(TOOLS);
    flaky.answer = (_, times) =>
      times === 1 ? textResult("late", { isError: true, code: "notDelivered" }) : undefined;
    const model = new TurnModel([callTool("git__get_log"), say("x")]);
    const specs = { main: { expose: "search" as const } };
    const setup = setUpAgents({ main: model }, flaky, specs);
    const running = setup.run();
    while (flaky.calls.length === 0) await turn();
    await setup.clock.advanceAsync(500);
    await running;
    assert.deepEqual(
      flaky.calls.map(({ name }) => name),
      ["git__get_log", "git__get_log"],
    );
    assert.deepEqual(model.lastResults, ["git__get_log {}"]);
  });

  it("gives results within resultLimit, and tells what is wrong with a search", async () => {
    const wrong = await tryOut([
      use(["search_tools", "{}"]),
      use(["search_tools", '{"query":"x","limit":0}']),
      use(["describe_tools", '{"names":[]}']),
      use(["search_tools", '{"query":"x","server":"mial"}']),
    ]);
    const [query, limit, names, server] = wrong.model.lastResults;
    assert.match(query ?? "", /query must be a string/);
    assert.match(limit ?? "", /limit must be an integer/);
    assert.match(names ?? "", /names must be an array/);
    assert.match(server ?? "", /no server "mial".*"mail"/);
    const cut = await tryOut([use(["search_tools", '{"query":"mail"}'])], { resultLimit: 50 });
    assert.match(cut.model.lastResults[0] ?? "", /\[cut: the result has/);
  });

  it("calls a server's tool that has the name of a tool for searching", async () => {
    const toolbox = new DescribedToolbox({
      ...TOOLS,
      search_tools: "Searches a shop for hammers.",
    });
    const { model } = await tryOut(
      [use(["search_tools", '{"query":"hammers"}']), callTool("search_tools", { value: "x" })],
      {},
      { toolbox },
    );
    assert.match(model.lastResults[0] ?? "", /"available":6/);
    assert.equal(model.lastResults[1], 'search_tools {"value":"x"}');
    assert.equal(namesOf(model.requests[0]), SEARCH);
  });

  it("decides for the agent that takes over the conversation, and for one that gets a task", async () => {
    const toolbox = new DescribedToolbox(TOOLS);
    const main = new TurnModel([
      use(["transfer_task", '{"agent":"other","task":"t"}']),
      use(["handoff", '{"agent":"other"}']),
    ]);
    const other = new TurnModel([say("done")]);
    const team = { subAgents: ["other"], handoffs: ["other"] };
    await setUpAgents({ main, other }, toolbox, {
      main: { expose: "direct", ...team },
      other: { expose: "search", tools: { servers: ["git"] } },
    }).run();
    assert.match(namesOf(main.requests[0]), /^git__get_log,/);
    assert.deepEqual(other.requests.map(namesOf), [SEARCH, SEARCH]);
    assert.match(other.requests[0]?.instruction ?? "", /^I am other\.\n\n[^]*\nServers: git$/);
  });

  it("makes an index once for equal listings", async () => {
    const search = new AgentToolSearch(settings(0));
    const { listed } = new DescribedToolbox(TOOLS);
    const { signal } = new AbortController();
    const ask = async (tools: readonly AgentTool[]): Promise<unknown> => {
      const result = await search.answer("search_tools", '{"query":"commits"}', tools, signal);
      return result.content;
    };
    const first = await ask(listed);
    // A tool that is read again would show the change.
    Object.assign(listed[0] ?? {}, { description: "Changed." });
    assert.deepEqual(await ask([...listed]), first);
    const other = [{ ...listed[0], description: "Changed." } as AgentTool, ...listed.slice(1)];
    assert.notDeepEqual(await ask(other), first);
  });

  it("stops a search when its run is cancelled", async () => {
    const search = new AgentToolSearch(settings(0));
    const reason = new Error("gone");
    const { listed } = new DescribedToolbox(TOOLS);
    await assert.rejects(
      search.answer("search_tools", '{"query":"x"}', listed, AbortSignal.abort(reason)),
      reason,
    );
  });
});
