/** The clients of the client suites: each runs the executable in front of the server of a scenario. */
import { once } from "node:events";
import { writeSync } from "node:fs";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { sleep } from "../../src/base/clock.ts";
import { executable, withTestFolder } from "../harness/hub.ts";
import { type Context, settingsFor } from "./scenario-settings.ts";

/** One start of the suite's command (client-command.ts): a scenario for one client. */
export interface ScenarioRun {
  readonly scenario: string;
  /** JSON text. */
  readonly context: string;
  readonly revision: string | undefined;
  /** The URL of the suite's server. */
  readonly url: string;
}

/**
 * Runs the clients that client-command.ts asks for, one after the other: the suite begins all scenarios at once, and
 * some of them have short time limits.
 */
export class ScenarioClients {
  readonly #server = createServer((socket) => {
    socket.on("error", () => {});
    this.#last = this.#last.then(() => runFor(socket, this.#log));
  });
  /** File descriptor to which the executable writes its stderr. */
  readonly #log: number;
  #last = Promise.resolve();

  constructor(log: number) {
    this.#log = log;
  }

  /** @returns its port on 127.0.0.1 */
  async listen(): Promise<number> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return (this.#server.address() as AddressInfo).port;
  }

  close(): void {
    this.#server.close();
  }
}

/** Reads a `ScenarioRun`, runs its client, and answers with the error, or with nothing. */
async function runFor(socket: Socket, log: number): Promise<void> {
  if (socket.destroyed) return;
  let problem = "";
  try {
    const [line] = (await once(createInterface(socket), "line")) as [string];
    await runClient(JSON.parse(line) as ScenarioRun, log);
  } catch (error) {
    problem = String(error);
  }
  socket.end(problem);
}

type ClientAction = (client: Client, run: ScenarioRun) => Promise<void>;
type Arguments = Readonly<Record<string, unknown>>;

async function call(client: Client, name: string, args: Arguments = {}): Promise<void> {
  try {
    const { isError } = await client.callTool({ name, arguments: args });
    if (isError === true) client.onerror?.(new Error(`${name} has failed`));
  } catch (error) {
    // The suite checks the requests; some of its results are not valid for the client.
    client.onerror?.(new Error(`${name}: ${String(error)}`));
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
const callWhenAuthorized: ClientAction = async (client, run) => {
  const end =
    performance.now() + LOGIN_LIMIT[FAILING_SCENARIOS.test(run.scenario) ? "wrong" : "right"];
  while ((await client.listTools()).tools.length === 0 && performance.now() < end) await sleep(50);
  await callAll(client, run);
};

function clientActionOf(name: string): ClientAction {
  return CLIENT_ACTIONS[name] ?? (name.startsWith("auth/") ? callWhenAuthorized : callAll);
}

/** The actions of the client after connecting, by scenario. */
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
  "http-standard-headers": async (client, run) => {
    await callAll(client, run);
    for (const { uri } of (await client.listResources()).resources) {
      await client.readResource({ uri });
    }
    for (const { name } of (await client.listPrompts()).prompts) await client.getPrompt({ name });
  },
  "http-custom-headers": async (client, { context }) => {
    await client.listTools();
    for (const { name, arguments: args } of readCalls(JSON.parse(context) as Context))
      await call(client, name, args);
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

async function runClient(run: ScenarioRun, log: number): Promise<void> {
  const { scenario, context, revision, url } = run;
  const { server, env } = settingsFor(scenario, JSON.parse(context) as Context);
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
      // oxlint-disable-next-line unicorn/prefer-add-event-listener -- the SDK's clients have no other way to listen
      client.onerror = (error) => void writeSync(log, `${scenario}: ${error.message}\n`);
      client.setRequestHandler("elicitation/create", () => ({ action: "accept", content: {} }));
      client.setRequestHandler("roots/list", () => ({ roots: [] }));
      const transport = new StdioClientTransport({
        command: executable(),
        args: ["--config", testFolder.config],
        cwd: testFolder.dir,
        env: { ...testFolder.env, ...env },
        stderr: log,
      });
      await client.connect(transport);
      try {
        await clientActionOf(scenario)(client, run);
      } finally {
        await client.close();
      }
    },
    "toolmux.json",
  );
}
