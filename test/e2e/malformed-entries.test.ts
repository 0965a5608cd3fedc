import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import {
  Client as ClientV2,
  StreamableHTTPClientTransport as HttpV2,
} from "@modelcontextprotocol/client";
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as HttpV1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { runJson } from "../harness/command.ts";
import { HIDDEN_DEPTHS, VISIBLE_DEPTHS, MALFORMED } from "../fixtures/malformed-entries.ts";
import { serveForSuite } from "../harness/serve.ts";
import { it, itWith, withTestFolder } from "../harness/hub.ts";
import { scripted, type ServerEntry } from "../harness/manifest.ts";
import {
  SKIP_WITHOUT_PYTHON,
  SKIP_WITHOUT_PYTHON_1,
  PYTHON,
  PYTHON_1,
  pythonScript,
} from "../harness/python.ts";

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

/** A hub that serves over HTTP, and the era that a client speaks with it. */
type Asked = readonly [era: Era, url: string];

async function withV1([, url]: Asked): Promise<Listed> {
  const client = new ClientV1(INFO);
  await client.connect(new HttpV1(new URL(url)));
  const listed = await listAll(client);
  await client.close();
  return { ...listed, version: "2025-11-25" };
}

async function withV2([era, url]: Asked): Promise<Listed> {
  const mode = era === "legacy" ? "legacy" : "auto";
  const client = new ClientV2(INFO, { versionNegotiation: { mode } });
  await client.connect(new HttpV2(new URL(url)));
  const listed = await listAll(client);
  const version = client.getNegotiatedProtocolVersion() ?? "";
  await client.close();
  return { ...listed, version };
}

async function withPython(python: string, asked: readonly Asked[]): Promise<readonly Listed[]> {
  const words = ["-W", "ignore", pythonScript("lists.py"), JSON.stringify(asked)];
  const { stdout } = await promisify(execFile)(python, words, { timeout: 40_000 });
  return JSON.parse(stdout) as readonly Listed[];
}

/** Official clients, by name: the eras that they speak, and how they list several hubs. */
const CLIENTS: readonly {
  readonly name: string;
  readonly eras: readonly Era[];
  readonly skip: string | boolean;
  readonly list: (asked: readonly Asked[]) => Promise<readonly Listed[]>;
}[] = [
  {
    name: "TypeScript SDK v1",
    eras: ["legacy"],
    skip: false,
    list: (asked) => Promise.all(asked.map(withV1)),
  },
  {
    name: "TypeScript SDK v2",
    eras: ERAS,
    skip: false,
    list: (asked) => Promise.all(asked.map(withV2)),
  },
  {
    name: "Python SDK 1.x",
    eras: ["legacy"],
    skip: SKIP_WITHOUT_PYTHON_1,
    list: (asked) => withPython(PYTHON_1, asked),
  },
  {
    name: "Python SDK 2.x",
    eras: ERAS,
    skip: SKIP_WITHOUT_PYTHON,
    list: (asked) => withPython(PYTHON, asked),
  },
];

describe("a server whose entries are malformed or nested deep", () => {
  const hubs = ERAS.map((spoken) =>
    serveForSuite("HTTP", () => ({
      hub: { listWait: "30s" },
      servers: { bad: bad(spoken), good: scripted() },
    })),
  );

  for (const { name, eras, skip, list } of CLIENTS) {
    const title = `costs a client of the ${name} nothing but what it cannot be shown, whichever era either speaks`;
    itWith({ skip })(title, async () => {
      const asked = eras.flatMap((era) => hubs.map((hub) => [era, String(hub().target)] as const));
      const all = await list(asked);
      assert.equal(all.length, asked.length);
      for (const [at, { version, ...listed }] of all.entries()) {
        assert.equal(version, asked[at]?.[0] === "legacy" ? "2025-11-25" : "2026-07-28");
        const tools = listed.tools.filter((tool) => !tool.startsWith("good__"));
        assert.ok(tools.length < listed.tools.length, "the good server has tools");
        const sorted = {
          tools: tools.toSorted(),
          prompts: listed.prompts.toSorted(),
          resources: listed.resources.toSorted(),
          resourceTemplates: listed.resourceTemplates.toSorted(),
        };
        assert.deepEqual(sorted, expected());
      }
    });
  }

  it("is told of by `list --all`, entry by entry", () =>
    withTestFolder({ servers: { bad: bad("legacy") } }, async (folder) => {
      const { remarks } = await runJson<{ remarks: { tool: string; kind: string }[] }>(
        folder,
        "list",
        "tools",
        "--all",
      );
      const named = (wanted: string): string[] =>
        remarks.flatMap(({ tool, kind }) => (kind === wanted ? [tool] : [])).toSorted();
      const changed = MALFORMED.flatMap((one) =>
        one.kind === "tools" ? [(JSON.parse(one.entry) as { name: string }).name] : [],
      );
      assert.deepEqual(named("conformed"), changed.toSorted());
      assert.deepEqual(named("unreadable"), HIDDEN_DEPTHS.map((depth) => `d${depth}`).toSorted());
    }));
});
