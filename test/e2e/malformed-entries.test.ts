import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Client as ClientV2 } from "@modelcontextprotocol/client";
import { StdioClientTransport as StdioV2 } from "@modelcontextprotocol/client/stdio";
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as StdioV1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import { HIDDEN_DEPTHS, VISIBLE_DEPTHS, MALFORMED } from "../fixtures/malformed-entries.ts";
import { withServe } from "../harness/serve.ts";
import { executable, it, itWith } from "../harness/hub.ts";
import { scripted, type ServerEntry } from "../harness/manifest.ts";
import {
  SKIP_WITHOUT_PYTHON,
  SKIP_WITHOUT_PYTHON_1,
  PYTHON,
  PYTHON_1,
  pythonScript,
} from "../harness/python.ts";
import type { StdioCommand } from "../harness/sdk-client.ts";

const SERVER = fileURLToPath(new URL("../fixtures/servers/malformed.ts", import.meta.url));
const ERAS = ["legacy", "modern"] as const;
type Era = (typeof ERAS)[number];

const bad = (era: Era): ServerEntry => ({
  command: process.execPath,
  args: [SERVER, era],
  prefix: "",
});

type Kind = "tools" | "prompts" | "resources" | "resourceTemplates";

/** The keys of what a client is listed, and the version that it speaks. */
type Listed = Readonly<Record<Kind, readonly string[]>> & { readonly version: string };

/** The keys of entries that clients are shown, without those of the good server. */
function expected(): Omit<Listed, "version"> {
  const keys = (kind: Kind, key: string): string[] =>
    MALFORMED.flatMap((one) =>
      one.kind === kind ? [(JSON.parse(one.entry) as Record<string, string>)[key] ?? ""] : [],
    );
  return {
    tools: [...keys("tools", "name"), ...VISIBLE_DEPTHS.map((depth) => `d${depth}`)].toSorted(),
    prompts: keys("prompts", "name").toSorted(),
    resources: [...keys("resources", "uri"), "toolmux://bad/relative"].toSorted(),
    resourceTemplates: keys("resourceTemplates", "uriTemplate").toSorted(),
  };
}

interface Lister {
  readonly listTools: () => Promise<{ tools: { name: string }[] }>;
  readonly listPrompts: () => Promise<{ prompts: { name: string }[] }>;
  readonly listResources: () => Promise<{ resources: { uri: string }[] }>;
  readonly listResourceTemplates: () => Promise<{ resourceTemplates: { uriTemplate: string }[] }>;
}

async function listAll(client: Lister): Promise<Omit<Listed, "version">> {
  return {
    tools: (await client.listTools()).tools.map(({ name }) => name),
    prompts: (await client.listPrompts()).prompts.map(({ name }) => name),
    resources: (await client.listResources()).resources.map(({ uri }) => uri),
    resourceTemplates: (await client.listResourceTemplates()).resourceTemplates.map(
      ({ uriTemplate }) => uriTemplate,
    ),
  };
}

const INFO = { name: "lister", version: "1.0.0" };

async function withV1(program: StdioCommand): Promise<Listed> {
  const client = new ClientV1(INFO);
  await client.connect(new StdioV1({ ...program, stderr: "ignore" }));
  const listed = await listAll(client);
  await client.close();
  return { ...listed, version: "2025-11-25" };
}

async function withV2(program: StdioCommand, era: Era): Promise<Listed> {
  const mode = era === "legacy" ? "legacy" : "auto";
  const client = new ClientV2(INFO, { versionNegotiation: { mode } });
  await client.connect(new StdioV2({ ...program, stderr: "ignore" }));
  const listed = await listAll(client);
  const version = client.getNegotiatedProtocolVersion() ?? "";
  await client.close();
  return { ...listed, version };
}

function withPython(python: string, era: Era) {
  return async ({ command, args, cwd, env }: StdioCommand): Promise<Listed> => {
    const words = ["-W", "ignore", pythonScript("lists.py"), era, command, ...args];
    const { stdout } = await promisify(execFile)(python, words, { cwd, env, timeout: 40_000 });
    return JSON.parse(stdout) as Listed;
  };
}

/** Official clients, by name: the era that they speak, and how they list. */
const CLIENTS: readonly {
  readonly name: string;
  readonly era: Era;
  readonly skip: string | boolean;
  readonly list: (program: StdioCommand) => Promise<Listed>;
}[] = [
  { name: "TypeScript SDK v1", era: "legacy", skip: false, list: withV1 },
  ...ERAS.map((era) => ({
    name: "TypeScript SDK v2",
    era,
    skip: false,
    list: (program: StdioCommand) => withV2(program, era),
  })),
  {
    name: "Python SDK 1.x",
    era: "legacy",
    skip: SKIP_WITHOUT_PYTHON_1,
    list: withPython(PYTHON_1, "legacy"),
  },
  ...ERAS.map((era) => ({
    name: "Python SDK 2.x",
    era,
    skip: SKIP_WITHOUT_PYTHON,
    list: withPython(PYTHON, era),
  })),
];

describe("a server whose entries are malformed or nested deep", () => {
  for (const spoken of ERAS) {
    for (const { name, era, skip, list } of CLIENTS) {
      const title = `of the ${spoken} era costs a ${era} client of the ${name} nothing but what it cannot be shown`;
      itWith({ skip })(title, () =>
        withServe(
          "stdio",
          { hub: { listWait: "30s" }, servers: { bad: bad(spoken), good: scripted() } },
          async ({ target: reach }) => {
            assert.ok(typeof reach !== "string");
            const { version, ...listed } = await list(reach);
            assert.equal(version, era === "legacy" ? "2025-11-25" : "2026-07-28");
            const tools = listed.tools.filter((tool) => !tool.startsWith("good__"));
            assert.ok(tools.length < listed.tools.length, "the good server has tools");
            const sorted = {
              tools: tools.toSorted(),
              prompts: listed.prompts.toSorted(),
              resources: listed.resources.toSorted(),
              resourceTemplates: listed.resourceTemplates.toSorted(),
            };
            assert.deepEqual(sorted, expected());
          },
        ),
      );
    }
  }

  it("is told of by `list --all`, entry by entry", () =>
    withServe("stdio", { servers: { bad: bad("legacy") } }, async ({ dir, config, env }) => {
      const args = ["list", "tools", "--all", "--json", "--config", config];
      const { stdout } = await promisify(execFile)(executable(), args, { cwd: dir, env });
      const { remarks } = JSON.parse(stdout) as { remarks: { tool: string; kind: string }[] };
      const named = (wanted: string): string[] =>
        remarks.flatMap(({ tool, kind }) => (kind === wanted ? [tool] : [])).toSorted();
      const changed = MALFORMED.flatMap((one) =>
        one.kind === "tools" ? [(JSON.parse(one.entry) as { name: string }).name] : [],
      );
      assert.deepEqual(named("conformed"), changed.toSorted());
      assert.deepEqual(named("unreadable"), HIDDEN_DEPTHS.map((depth) => `d${depth}`).toSorted());
    }));
});
