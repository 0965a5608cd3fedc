/**
 * The client command of the client suites (last argument: the URL of the suite's server). Starts the executable in
 * front of that URL and runs a client as the scenario requires, so that the suite sees the hub's requests, when it
 * is its turn at the port TOOLMUX_TURNS. Run by bun.
 */
import process from "node:process";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { sleep } from "../../src/base/clock.ts";
import { executable, withTestFolder } from "../harness/hub.ts";
import { type Context, settingsFor } from "./scenario-settings.ts";
import { waitForTurn } from "./turns.ts";

const { MCP_CONFORMANCE_SCENARIO: scenario = "", MCP_CONFORMANCE_CONTEXT: contextJson = "{}" } =
  process.env;
const revision = process.env["MCP_CONFORMANCE_PROTOCOL_VERSION"];
const url = process.argv.at(-1);
const context = JSON.parse(contextJson) as Context;

type ClientAction = (client: Client) => Promise<void>;
type Arguments = Readonly<Record<string, unknown>>;

async function call(client: Client, name: string, args: Arguments = {}): Promise<void> {
  try {
    const { isError } = await client.callTool({ name, arguments: args });
    if (isError === true) process.stderr.write(`${name} has failed.\n`);
  } catch (error) {
    // The suite checks the requests; some of its results are not valid for the client.
    process.stderr.write(`${name}: ${String(error)}\n`);
  }
}

/** Calls every listed tool. */
const callAll: ClientAction = async (client) => {
  for (const { name } of (await client.listTools()).tools) await call(client, name);
};

/** Time limits of an authorization that must succeed and of one that must fail, in ms. */
const LOGIN_LIMIT = { right: 8000, wrong: 2500 };
const FAILING_SCENARIOS =
  /iss-(?:supported-missing|wrong|unexpected|normalized)|mismatch|retry-limit/;

/** Waits for the hub's authorization and calls every tool; where authorization must fail, there are none. */
const callWhenAuthorized: ClientAction = async (client) => {
  const end = performance.now() + LOGIN_LIMIT[FAILING_SCENARIOS.test(scenario) ? "wrong" : "right"];
  while ((await client.listTools()).tools.length === 0 && performance.now() < end) await sleep(50);
  await callAll(client);
};

function clientActionOf(name: string): ClientAction {
  return CLIENT_ACTIONS[name] ?? (name.startsWith("auth/") ? callWhenAuthorized : callAll);
}

/** What the client does after connecting, by scenario. */
const CLIENT_ACTIONS: Readonly<Record<string, ClientAction>> = {
  initialize: async (client) => void (await client.listTools()),
  tools_call: async (client) => {
    await client.listTools();
    await call(client, "add_numbers", { a: 5, b: 3 });
  },
  "elicitation-sep1034-client-defaults": async (client) => {
    await client.listTools();
    await call(client, "test_client_elicitation_defaults");
  },
  "sse-retry": async (client) => {
    await client.listTools();
    await call(client, "test_reconnection");
  },
  "json-schema-2020-12-preservation": async (client) => {
    const { tools } = await client.listTools();
    const schemaTool = tools.find(({ name }) => name === "json_schema_2020_12_tool");
    await call(client, "json_schema_echo", { schema: schemaTool?.inputSchema });
  },
  "json-schema-ref-no-deref": async (client) => void (await client.listTools()),
  "request-metadata": async (client) => {
    await client.listTools();
  },
  "sep-2322-client-request-state": callAll,
  "http-standard-headers": async (client) => {
    await callAll(client);
    for (const { uri } of (await client.listResources()).resources) {
      await client.readResource({ uri });
    }
    for (const { name } of (await client.listPrompts()).prompts) await client.getPrompt({ name });
  },
  "http-custom-headers": async (client) => {
    await client.listTools();
    for (const { name, arguments: args } of readCalls(context)) await call(client, name, args);
  },
  "http-invalid-tool-headers": async (client) => {
    for (const { name } of (await client.listTools()).tools) {
      await call(client, name, { region: "us-east1" });
    }
  },
};

function readCalls({ toolCalls }: Context): readonly { name: string; arguments: Arguments }[] {
  return Array.isArray(toolCalls) ? toolCalls : [];
}

if (url === undefined) throw new Error("The URL of a server is missing.");
await waitForTurn(Number(process.env["TOOLMUX_TURNS"]));
const { server, env } = settingsFor(scenario, context);
const manifest = { servers: { referee: { url, prefix: "", ...server } } };
await withTestFolder(
  JSON.stringify(manifest),
  async (testFolder) => {
    const client = new Client(
      { name: "conformance", version: "1.0.0" },
      {
        capabilities: { roots: {}, sampling: {}, elicitation: { form: { applyDefaults: true } } },
        versionNegotiation: { mode: revision === "2026-07-28" ? "auto" : "legacy" },
      },
    );
    client.setRequestHandler("elicitation/create", () => ({ action: "accept", content: {} }));
    client.setRequestHandler("roots/list", () => ({ roots: [] }));
    const transport = new StdioClientTransport({
      command: executable(),
      args: ["--config", testFolder.config],
      cwd: testFolder.dir,
      env: { ...testFolder.env, ...env },
      stderr: "inherit",
    });
    await client.connect(transport);
    try {
      await clientActionOf(scenario)(client);
    } finally {
      await client.close();
    }
  },
  "toolmux.json",
);
