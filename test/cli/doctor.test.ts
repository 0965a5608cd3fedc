import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { chmod, mkdir, rm, stat, utimes } from "node:fs/promises";
import { createServer as createWebServer } from "node:http";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { TOKEN_NAME } from "../../src/cli/http-address.ts";
import { saveToken, type StoredToken } from "../../src/auth/stored-token.ts";
import { storeName } from "../../src/auth/registration.ts";
import schemaRepair from "../../plugins/schema-repair/index.ts";
import { utf8 } from "../../src/base/bytes.ts";
import { EMPTY_LISTING, readItem } from "../../src/catalog/listing.ts";
import type { CommandContext } from "../../src/cli/command.ts";
import {
  describeFindings,
  collectFindings,
  type DoctorOptions,
  findingsToJson,
  repair,
} from "../../src/cli/doctor/doctor.ts";
import { openTransportFactory } from "../../src/cli/transport-factory.ts";
import { parseCommand } from "../fixtures/command-line.ts";
import { Terminal } from "../../src/terminal/terminal.ts";
import {
  FINDING_CODES,
  type FindingCode,
  type Finding,
  severityOf,
} from "../../src/cli/doctor/findings.ts";
import { lintTool } from "../../src/cli/doctor/tool-schema.ts";
import { stateFolder } from "../../src/base/paths.ts";
import { loadManifest } from "../../src/manifest/load.ts";
import { openSecrets } from "../../src/secrets/secrets.ts";
import { readHmac } from "../../src/snapshot/hmac.ts";
import { diskSnapshots } from "../../src/snapshot/disk.ts";
import { processTable } from "../../src/process/process-table.ts";
import { type ManifestFolder, withManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { skipWithoutLinux } from "../harness/requirements.ts";

const CANARY = "canary-0123456789abcdef";
const DAY = 24 * 60 * 60 * 1000;
/** What other tests may do to this machine at the same time. */
const OF_OTHERS: readonly string[] = ["TM601"];

/** A home in which nothing is wrong, and what can be done to it. */
class Machine {
  readonly folder: ManifestFolder;
  readonly world: CommandContext & { readonly env: Record<string, string> };
  readonly manifest: string;

  constructor(folder: ManifestFolder) {
    this.folder = folder;
    this.manifest = join(folder.home, ".config/toolmux/toolmux.toml");
    const PATH = `${join(folder.home, "bin")}:${process.env["PATH"] ?? ""}`;
    this.world = {
      env: {
        HOME: folder.home,
        PATH,
        TOOLMUX_KEYCHAIN: "off",
        TOOLMUX_RUN_DIR: join(folder.home, ".local/state/toolmux/run"),
      },
      cwd: folder.cwd,
      platform: "linux",
      terminal: new Terminal({}),
      signal: new AbortController().signal,
      uncaughtErrorHandlers: new Set(),
      hangupHandlers: new Set(),
    };
  }

  get state(): string {
    return stateFolder(this.world.env, "linux");
  }

  get store() {
    return openSecrets(this.world).file;
  }

  /** Writes a manifest with one server that is fine, and what else is wanted. */
  async write(more = "", server = 'command = "/bin/true"'): Promise<void> {
    await this.folder.write(
      "home/.config/toolmux/toolmux.toml",
      `[servers.good]\n${server}\n${more}`,
    );
    await chmod(this.manifest, 0o600);
    await mkdir(this.folder.cwd, { recursive: true });
  }

  /** Remembers that a server has listed these tools. @param age in ms */
  async remember(name: string, tools: readonly object[], age = 0): Promise<void> {
    const { env, cwd, platform } = this.world;
    const loaded = await loadManifest({ files: [], env, cwd, platform });
    assert.ok(loaded.ok);
    const spec = loaded.manifest.servers.find((server) => server.name === name);
    assert.ok(spec?.kind === "stdio" || spec?.kind === "remote");
    const { resolveIdentity: identify } = openTransportFactory(this.world, () =>
      Promise.reject(new Error("nobody")),
    );
    const identity = await identify(spec, new Map());
    assert.ok(identity);
    const now = () => Date.now() - age;
    const snapshots = diskSnapshots({ folder: this.state, now, warn: assert.fail });
    const items = tools.flatMap((tool) => readItem(utf8(JSON.stringify(tool)), "tools") ?? []);
    const subject = { ...identity, era: "legacy", capabilities: "" } as const;
    await snapshots.save(subject, { ...EMPTY_LISTING, tools: items });
    await snapshots.flush();
  }

  examine(...argv: readonly string[]): Promise<readonly Finding[]> {
    const { invocation } = parseCommand<DoctorOptions>(["doctor", ...argv]);
    return collectFindings(invocation, this.world);
  }

  async codes(...argv: readonly string[]): Promise<readonly FindingCode[]> {
    return (await this.examine(...argv)).map(({ code }) => code);
  }
}

function withMachine<T>(use: (machine: Machine) => Promise<T>): Promise<T> {
  return withManifestFolder((folder) => use(new Machine(folder)));
}

const TOOL = { name: "t", description: "d", inputSchema: { type: "object", properties: {} } };
const tool = (schema: object, name = "t"): object => ({ ...TOOL, name, inputSchema: schema });
const nest = (depth: number): unknown => (depth === 0 ? 1 : [nest(depth - 1)]);
const LISTED =
  (...tools: readonly object[]) =>
  async (machine: Machine) => {
    await machine.write();
    await machine.remember("good", tools);
  };
/** A server that offers nothing, and shows its second argument on stdout before it says a word of MCP. */
const NOISY = String.raw`echo "starting with $1"
while read -r line; do
  id=$(echo "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
  echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"n","version":"1"}}}'
done`;
const REMOTE = 'url = "https://r.example.com/mcp"';

const kept = (expires: number, refresh?: string): StoredToken => ({
  url: "https://r.example.com/mcp",
  issuer: "https://a.example.com",
  place: "https://a.example.com",
  tokenEndpoint: undefined,
  revocationEndpoint: undefined,
  methods: undefined,
  resource: undefined,
  asked: [],
  scopes: [],
  grant: "authorizationCode",
  client: { kind: "configured", id: "c" },
  access: CANARY,
  refresh,
  issued: 0,
  expires,
});

async function keepToken(machine: Machine, expires: number, refresh?: string): Promise<void> {
  await machine.write(`[servers.r]\n${REMOTE}\n`);
  const name = await storeName("server", "r", "https://r.example.com/mcp");
  await saveToken(machine.store, name, kept(expires, refresh));
}

describe("what is wrong with a manifest", () => {
  it("is said in one sentence, with one mark at its end", () =>
    withMachine(async (machine) => {
      await machine.write('[hub]\nnam = "x"');
      const found = (await machine.examine()).filter(({ code }) => code === "TM101");
      const texts = found.map(({ text }) => text);
      assert.deepEqual(texts, ['hub.nam: unknown key; did you mean "name"?']);
    }));

  it("names a secret as it would be kept", () =>
    withMachine(async (machine) => {
      await machine.write("", `command = "/bin/true"\nenv = { API_TOKEN = "${CANARY}" }`);
      const found = (await machine.examine()).find(({ code }) => code === "TM107");
      assert.match(
        found?.advice ?? "",
        /toolmux secret set good\/API_TOKEN, .*\$\{secret:good\/API_TOKEN\}/,
      );
    }));
});

it("names a few of many servers that nothing is known of, and how many more there are", () =>
  withMachine(async (machine) => {
    const more = Array.from(
      { length: 30 },
      (_, i) => `[servers.s${i}]\ncommand = "/bin/true"\nargs = ["${i}"]\n`,
    );
    await machine.write(more.join(""));
    const found = (await machine.examine()).find(({ code }) => code === "TM803");
    assert.match(found?.text ?? "", /: good, s0, .*, s8 and 21 more\.$/);
  }));

describe("a snapshot in the form of another toolmux", () => {
  it("counts as too old, and costs the doctor nothing else", () =>
    withMachine(async (machine) => {
      await LISTED(TOOL)(machine);
      const name = "0e".repeat(32);
      const seal = await readHmac(machine.state);
      assert.ok(seal);
      const body = new TextEncoder().encode(`${name}\n${Date.now()}\n{}\n{"things":[]}\n[]\n`);
      const path = `home/.local/state/toolmux/snapshots/${name}`;
      await machine.folder.write(path, `${await seal(body)}\n${new TextDecoder().decode(body)}`);
      const codes = await machine.codes();
      assert.ok(codes.includes("TM802"));
      assert.ok(!codes.includes("TM801") && !codes.includes("TM803"));
    }));
});

/** A tag of a hub that is certainly dead. */
async function makeDeadTag(): Promise<string> {
  const ended = spawn("/bin/true");
  await new Promise((settle) => ended.once("exit", settle));
  const { boot, pidNamespace: space } = await processTable.system();
  return `${ended.pid}/1/${boot}/${space}/${crypto.randomUUID()}.1`;
}

async function listen(use: (port: number) => Promise<void>): Promise<void> {
  const server = createServer();
  await new Promise<void>((settle) => server.listen(0, "127.0.0.1", settle));
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  await use(address.port).finally(() => server.close());
}

/** How each is brought about, and the options that it takes to see it. */
const CASES: Readonly<
  Partial<
    Record<FindingCode, { make: (machine: Machine) => Promise<unknown>; argv?: readonly string[] }>
  >
> = {
  TM101: { make: (machine) => machine.write("[servers.bad]\ncomand = 1\n") },
  TM102: {
    make: async (machine) => {
      await machine.write();
      await machine.folder.write("work/.mcp.json", '{"mcpServers":{}}');
    },
  },
  TM103: {
    make: async (machine) => {
      await machine.write();
      await machine.folder.write("home/.config/toolmux/toolmux.json", "{}");
    },
  },
  TM104: { make: (machine) => mkdir(machine.folder.cwd, { recursive: true }) },
  TM105: {
    make: (machine) =>
      machine.folder.write("home/f.json", '{"mcpServers":{"a":{"type":"ws","url":"wss://x"}}}'),
    argv: ["--config", "~/f.json"],
  },
  TM106: { make: (machine) => machine.write('[servers.again]\ncommand = "/bin/true"\n') },
  TM107: {
    make: (machine) =>
      machine.write("", `command = "/bin/true"\nenv = { API_TOKEN = "${CANARY}" }`),
  },
  TM201: { make: (machine) => machine.write("", 'command = "no-such-command-here"') },
  TM202: {
    make: async (machine) => {
      await machine.folder.write("home/bin/forbidden", "#!/bin/sh\n");
      await machine.write("", `command = "${machine.folder.home}/bin/forbidden"`);
    },
  },
  TM203: {
    make: async (machine) => {
      const file = await machine.folder.write("home/bin/node", "#!/bin/sh\necho v16.20.2\n");
      await chmod(file, 0o755);
      await machine.write("", 'command = "npx"\nargs = ["x"]');
      await chmod(await machine.folder.write("home/bin/npx", "#!/bin/sh\n"), 0o755);
    },
  },
  TM204: { make: (machine) => machine.write("", 'command = "/bin/true"\ncwd = "nowhere"') },
  TM205: { make: (machine) => machine.write("", 'url = "ftp://x"') },
  TM301: { make: (machine) => machine.write("", 'command = "x"\nargs = ["${secret:good/token}"]') },
  TM302: {
    make: async (machine) => {
      await machine.write();
      await machine.store.set("left/over", CANARY);
    },
  },
  TM303: {
    make: async (machine) => {
      await machine.write();
      await machine.store.set("left/over", CANARY);
    },
  },
  TM304: {
    make: async (machine) => {
      await machine.write();
      await chmod(
        await machine.folder.write("home/.config/toolmux/secrets/values", "nonsense"),
        0o600,
      );
    },
  },
  TM401: { make: (machine) => machine.write(`[servers.r]\n${REMOTE}\nauth = "oauth"\n`) },
  TM402: { make: (machine) => keepToken(machine, 1) },
  TM403: { make: (machine) => keepToken(machine, 1, CANARY) },
  TM602: {
    make: async (machine) => {
      await machine.write();
      const file = `home/.config/toolmux/toolmux.toml.${crypto.randomUUID()}.draft`;
      const path = await machine.folder.write(file, CANARY);
      await utimes(path, new Date(0), new Date(0));
    },
  },
  TM603: {
    make: async (machine) => {
      await machine.write();
      const lock = await machine.folder.write(
        "home/.config/toolmux/secrets/lock",
        await makeDeadTag(),
      );
      await chmod(lock, 0o600);
      await chmod(join(machine.folder.home, ".config/toolmux/secrets"), 0o700);
    },
  },
  TM604: {
    make: async (machine) => {
      await machine.write();
      // A file on which no process listens.
      const socket = await machine.folder.write("home/.local/state/toolmux/run/1-a.sock", "");
      await chmod(socket, 0o600);
      for (let folder = dirname(socket); folder !== machine.folder.home; folder = dirname(folder))
        await chmod(folder, 0o700);
    },
  },
  TM701: {
    make: async (machine) => {
      await machine.write("", `command = "/bin/true"\nenv = { API_TOKEN = "${CANARY}" }`);
      await chmod(machine.manifest, 0o644);
    },
  },
  TM702: {
    make: async (machine) => {
      await LISTED(TOOL)(machine);
      await chmod(machine.state, 0o755);
    },
  },
  TM801: {
    make: async (machine) => {
      await LISTED(TOOL)(machine);
      await machine.folder.write(`home/.local/state/toolmux/snapshots/${"0f".repeat(32)}`, "x");
    },
  },
  TM802: {
    make: async (machine) => {
      await machine.write();
      await machine.remember("good", [TOOL], 40 * DAY);
    },
  },
  TM803: { make: (machine) => machine.write() },
  TM901: { make: LISTED(tool({ type: "object" }, "a.b")) },
  TM902: {
    make: async (machine) => {
      await machine.write(
        'prefix = ""\n[servers.other]\ncommand = "/bin/true"\nargs = ["2"]\nprefix = ""\n',
      );
      await machine.remember("good", [TOOL]);
      await machine.remember("other", [TOOL]);
    },
  },
  TM903: { make: LISTED(TOOL, TOOL) },
  TM904: { make: LISTED({ ...TOOL, description: null }) },
  TM905: { make: LISTED(tool({ type: "object", default: nest(200) })) },
  TM906: {
    make: async (machine) => {
      await machine.write('tools.describe = { nobody = "Does nothing." }');
      await machine.remember("good", [TOOL]);
    },
  },
  TM907: {
    make: async (machine) => {
      await machine.write(`tools.annotations.${TOOL.name}.readOnlyHint = true`);
      await machine.remember("good", [{ ...TOOL, annotations: { readOnlyHint: false } }]);
    },
  },
  TM908: {
    make: async (machine) => {
      await machine.write('tools.deny = ["*_delete"]');
      await machine.remember("good", [TOOL]);
    },
  },
  TM911: {
    make: LISTED(tool({ type: "object", $schema: "http://json-schema.org/draft-07/schema#" })),
  },
  TM912: { make: LISTED(tool({ properties: {} })) },
  TM913: {
    make: LISTED(
      tool({
        type: "object",
        properties: { a: { $ref: "#/$defs/a" } },
        $defs: { a: { type: "object", properties: { b: { $ref: "#/$defs/a" } } } },
      }),
    ),
  },
  TM914: { make: LISTED(tool({ type: "object", properties: { a: { $ref: "https://x/y" } } })) },
  TM915: { make: LISTED(tool({ type: "object", anyOf: [{ required: ["a"] }] })) },
  TM916: { make: LISTED(tool({ type: "object", properties: { "a[b]": { type: "string" } } })) },
  TM917: { make: LISTED({ ...TOOL, description: "x".repeat(2000) }) },
  TM918: { make: LISTED({ name: "t" }) },
  TM921: {
    make: LISTED(...Array.from({ length: 81 }, (_, i) => tool({ type: "object" }, `t${i}`))),
  },
  TM951: {
    make: async (machine) => {
      await machine.write();
      await machine.folder.write(
        "home/.cursor/mcp.json",
        '{"mcpServers":{"x":{"command":"/bin/true"}}}',
      );
    },
  },
  TM952: {
    make: async (machine) => {
      await machine.write();
      await machine.folder.write("home/.cursor/mcp.json", '{"mcpServers":');
    },
  },
  TM953: {
    make: async (machine) => {
      await machine.write();
      const file = '{"mcpServers":{"toolmux":{"command":"/gone/toolmux"}}}';
      await machine.folder.write("home/.cursor/mcp.json", file);
    },
  },
  TM961: {
    make: (machine) =>
      machine.write(
        "",
        `command = "/bin/sh"\nargs = ["-c", "echo ${CANARY} >&2; exit 1", "--token", "${CANARY}"]`,
      ),
    argv: ["--connect"],
  },
  TM964: {
    make: (machine) =>
      machine.write(
        "",
        `command = "/bin/sh"\nargs = ["-c", ${JSON.stringify(NOISY)}, "--token", "${CANARY}"]`,
      ),
    argv: ["--connect"],
  },
};

describe("the doctor", () => {
  it("finds nothing wrong where nothing is", () =>
    withMachine(async (machine) => {
      await LISTED(TOOL)(machine);
      const codes = (await machine.codes()).filter((code) => !OF_OTHERS.includes(code));
      assert.deepEqual(codes, ["TM001", "TM002"]);
    }));

  it("does not take the token that --token auto keeps for one that nobody uses", () =>
    withMachine(async (machine) => {
      await machine.write();
      await machine.store.set(TOKEN_NAME, CANARY);
      assert.ok(!(await machine.codes()).includes("TM302"));
      await machine.store.set(`${TOKEN_NAME}s`, CANARY);
      assert.ok((await machine.codes()).includes("TM302"));
    }));

  for (const [code, { make, argv = [] }] of Object.entries(CASES)) {
    it(`finds ${code}: ${FINDING_CODES[code as FindingCode].title}`, () =>
      withMachine(async (machine) => {
        await make(machine);
        const all = await machine.examine(...argv);
        const findings = all.filter((finding) => !OF_OTHERS.includes(finding.code));
        const found = findings.find((finding) => finding.code === code);
        assert.ok(found, JSON.stringify(findings, null, 2));
        assert.match(found.text, /[.?]$/);
        const paper = new Terminal({ NO_COLOR: "1" }).stdout;
        const shown =
          describeFindings(findings, true, paper) + JSON.stringify(findingsToJson(findings, []));
        assert.doesNotMatch(shown, /canary/);
        const done = await repair(findings);
        const left = await machine.codes(...argv);
        const isFixable = (found.fixes ?? []).length > 0;
        assert.equal(left.includes(code as FindingCode), !isFixable);
        assert.equal(
          done.length > 0,
          findings.some(({ fixes = [] }) => fixes.length > 0),
        );
      }));
  }

  it("finds TM501 and TM502 where other processes listen", () =>
    withMachine((machine) =>
      listen(async (port) => {
        const oauth = `oauth = { callbackPort = ${port} }`;
        await machine.write(`[servers.r]\n${REMOTE}\nauth = "oauth"\n${oauth}\n`);
        const codes = await machine.codes("--http", `127.0.0.1:${port}`);
        assert.ok(codes.includes("TM501") && codes.includes("TM502"), codes.join());
      }),
    ));

  it(
    "finds TM601 where a killed hub has left something, and can end it",
    { skip: skipWithoutLinux("orphans found by doctor") },
    () =>
      withMachine(async (machine) => {
        await machine.write();
        // Any hub that starts meanwhile does the same.
        for (let tries = 0; tries < 10; tries++) {
          const env = { TOOLMUX_OWNER: await makeDeadTag() };
          const sleeper = spawn("/bin/sleep", ["60"], { env, detached: true, stdio: "ignore" });
          const exited = new Promise((settle) => sleeper.once("exit", settle));
          const findings = (await machine.examine()).filter(({ code }) => code === "TM601");
          await repair(findings);
          if (findings.length === 0) sleeper.kill("SIGKILL");
          await exited;
          if (findings.length === 1) return;
        }
        assert.fail("it was never found");
      }),
  );

  it("has a case for each of its codes", () => {
    const tested = [...Object.keys(CASES), "TM001", "TM002", "TM501", "TM502", "TM601"];
    assert.deepEqual(tested.toSorted(), Object.keys(FINDING_CODES).toSorted());
  });

  it("leaves the manifest and what is kept as it is without --fix", () =>
    withMachine(async (machine) => {
      await CASES.TM701?.make(machine);
      await machine.examine();
      assert.equal((await stat(machine.manifest)).mode & 0o777, 0o644);
    }));

  it("says nothing of schemas where the plugin that repairs them is in use", () =>
    withMachine(async (machine) => {
      await machine.write('[[plugins]]\nuse = "schema-repair"\n');
      await machine.remember("good", [tool({ properties: {} })]);
      assert.ok(!(await machine.codes()).includes("TM912"));
    }));

  it("looks for any of those that can run a package", () =>
    withMachine(async (machine) => {
      const runner = await machine.folder.write("home/bin/bunx", "#!/bin/sh\n");
      await chmod(runner, 0o755);
      await machine.write("", 'package = "npm:some-server@1.0.0"');
      machine.world.env["PATH"] = join(machine.folder.home, "bin");
      assert.ok(!(await machine.codes()).includes("TM201"));
      await rm(runner);
      assert.ok((await machine.codes()).includes("TM201"));
    }));

  it("finds what was left beside a client's file, and removes it alone", () =>
    withMachine(async (machine) => {
      await machine.write();
      const file = await machine.folder.write("home/.cursor/mcp.json", "{}");
      const left = await machine.folder.write(
        `home/.cursor/mcp.json.${crypto.randomUUID()}.draft`,
        "",
      );
      const fresh = await machine.folder.write(
        `home/.cursor/mcp.json.${crypto.randomUUID()}.draft`,
        "",
      );
      const other = await machine.folder.write(
        `home/.cursor/notes.${crypto.randomUUID()}.draft`,
        "",
      );
      for (const path of [left, other]) await utimes(path, new Date(0), new Date(0));
      const findings = (await machine.examine()).filter(({ code }) => code === "TM602");
      assert.deepEqual(
        findings.map(({ subject }) => subject),
        [left],
      );
      await repair(findings);
      await assert.rejects(stat(left), { code: "ENOENT" });
      for (const path of [file, fresh, other]) await stat(path);
    }));

  it("takes two servers with other variables for two", () =>
    withMachine(async (machine) => {
      await machine.write('[servers.again]\ncommand = "/bin/true"\nenv = { A = "1" }\n');
      assert.ok(!(await machine.codes()).includes("TM106"));
    }));

  it("says once, and not twice, that a server cannot be started", () =>
    withMachine(async (machine) => {
      await machine.write("", 'command = "no-such-command-here"');
      const found = (await machine.examine("--connect")).filter(
        (finding) => severityOf(finding) === "error",
      );
      assert.deepEqual(
        found.map(({ code }) => code),
        ["TM201"],
      );
    }));

  it("asks nobody to log in, with --connect, but says that somebody has to", () =>
    withMachine(async (machine) => {
      const web = createWebServer((_, response) => {
        response.writeHead(401, { "www-authenticate": "Bearer" }).end();
      });
      await new Promise<void>((settle) => web.listen(0, "127.0.0.1", settle));
      try {
        const address = web.address();
        assert.ok(typeof address === "object" && address !== null);
        await machine.write("", `url = "http://127.0.0.1:${address.port}/mcp"`);
        const found = (await machine.examine("--connect")).filter(
          ({ subject }) => subject === "good",
        );
        assert.deepEqual(
          found.map(({ code }) => code),
          ["TM401"],
        );
      } finally {
        web.closeAllConnections();
        web.close();
      }
    }));

  it("looks at what servers list now, with --connect", () =>
    withMachine(async (machine) => {
      const server = join(
        fileURLToPath(new URL("../..", import.meta.url)),
        "node_modules/@modelcontextprotocol/server-memory/dist/index.js",
      );
      await machine.write("", `command = "node"\nargs = [${JSON.stringify(server)}]`);
      const codes = await machine.codes("--connect");
      assert.deepEqual(
        codes.filter((code) => !OF_OTHERS.includes(code)),
        ["TM001", "TM002", "TM911"],
      );
    }));
});

/** Ways to give a server a value, and what each takes to work; all of them stand for the canary. */
const GIVEN: Readonly<Record<string, (machine: Machine) => Promise<string>>> = {
  "the secret store": async (machine) => {
    await machine.store.set("st/key", CANARY);
    return "${secret:st/key}";
  },
  "the environment": (machine) => {
    machine.world.env["SETTING"] = CANARY;
    return Promise.resolve("${env:SETTING}");
  },
  "a file": async (machine) => `\${file:${await machine.folder.write("home/value", CANARY)}}`,
  "a command": async (machine) => {
    const file = await machine.folder.write("home/value", CANARY);
    return `\${cmd:cat ${file}}`;
  },
};

/** Servers that have the value wherever one can stand, each with something else that is wrong with it. */
async function poison(machine: Machine, given: string): Promise<string> {
  await chmod(await machine.folder.write(`home/bin/${CANARY}`, "#!/bin/sh\n"), 0o644);
  const old = await machine.folder.write(`home/${CANARY}/node`, "#!/bin/sh\necho v16.20.2\n");
  await chmod(old, 0o755);
  const { home } = machine.folder;
  return `
[servers.absent]
command = "${given}"
args = ["${given}", "--token", "${given}"]
env = { A = "${given}", API_TOKEN = "x${given}" }
[servers.absent-path]
command = "/nowhere/${given}/x"
[servers.forbidden]
command = "${home}/bin/${given}"
[servers.old]
command = "${home}/${given}/node"
[servers.nowhere]
command = "/bin/true"
cwd = "/nowhere/${given}"
[servers.missing]
command = "/bin/true"
args = ["${given}", "\${env:NOT_SET}", "\${secret:not/set}"]
[servers.talks]
command = "/bin/sh"
args = ["-c", "echo $0 $A >&2; exit 1", "${given}"]
env = { A = "${given}" }
[servers.no-url]
url = "${given}"
[servers.with-password]
url = "http://ada:${given}@127.0.0.1:1/mcp"
[servers.remote]
url = "http://127.0.0.1:1/${given}?q=${given}"
headers = { A = "${given}", Authorization = "Bearer ${given}" }
auth = "oauth"
oauth = { clientId = "${given}", clientSecret = "${given}" }
[servers.key-file]
url = "http://127.0.0.1:1/"
keyFile = "/nowhere/${given}"
[servers.authority]
url = "http://127.0.0.1:1/"
ca = "/nowhere/${given}"
[servers.header]
url = "http://127.0.0.1:1/"
headers = { A = "${given}\\u0001" }
[secrets]
commands = true
`;
}

async function shownBy(machine: Machine, ...argv: readonly string[]) {
  const findings = await machine.examine(...argv);
  const text = describeFindings(findings, true, new Terminal({ NO_COLOR: "1" }).stdout);
  return { findings, text: `${text}\n${JSON.stringify(findingsToJson(findings, []))}` };
}

describe("a secret that a server is given", () => {
  for (const [source, give] of Object.entries(GIVEN)) {
    for (const argv of [[], ["--connect"]] as const) {
      it(`by ${source} is in nothing that ${["the doctor", ...argv].join(" ")} says`, () =>
        withMachine(async (machine) => {
          await machine.write(await poison(machine, await give(machine)));
          const { findings, text } = await shownBy(machine, ...argv);
          assert.ok(!text.includes(CANARY), text);
          const codes = new Set<string>(findings.map(({ code }) => code));
          // Without running it nobody knows what a command prints.
          const isKnown = source !== "a command";
          for (const code of isKnown ? ["TM201", "TM202", "TM203", "TM204"] : []) {
            assert.ok(codes.has(code), `${code}\n${text}`);
          }
          for (const code of ["TM205", "TM301"]) assert.ok(codes.has(code), `${code}\n${text}`);
          assert.equal(codes.has("TM961"), argv.length > 0, text);
        }));
    }
  }

  it("is in nothing that the doctor says, whatever else is found", async () => {
    const cases = Object.entries(CASES);
    assert.ok(cases.length > 0);
    for (const [code, { make, argv = [] }] of cases) {
      await withMachine(async (machine) => {
        await make(machine);
        const given = await GIVEN["the environment"]?.(machine);
        assert.ok(given !== undefined);
        const path = await machine.folder.write("home/poisoned.toml", await poison(machine, given));
        const files = argv.includes("--config") ? [] : ["--config", path];
        // Servers of the case stand beside them.
        const isThere = await stat(machine.manifest).then(
          () => true,
          () => false,
        );
        const both = isThere ? ["--config", machine.manifest, ...files] : [];
        const { findings, text } = await shownBy(machine, ...both, ...argv);
        assert.ok(!text.includes(CANARY), `${code}\n${text}`);
        // Where files are named none is looked for.
        if (!["TM102", "TM103", "TM104"].includes(code)) {
          assert.ok(
            findings.some((finding) => finding.code === code),
            `${code}\n${text}`,
          );
        }
      });
    }
  });

  it("is in nothing that is said of a plugin's options", () =>
    withMachine(async (machine) => {
      const options = `[plugins.options]\nunrepairable = "${CANARY}"\nnonsense = "${CANARY}"\n`;
      await machine.write(`[[plugins]]\nuse = "schema-repair"\n${options}`);
      const plain = await shownBy(machine);
      assert.ok(!plain.text.includes(CANARY), plain.text);
      await assert.rejects(machine.examine("--connect"), (error: Error) => {
        assert.ok(!error.message.includes(CANARY), error.message);
        return true;
      });
    }));
});

describe("what the doctor says of schemas", () => {
  const object = { type: "object", properties: {} };
  const corpus: readonly object[] = [
    object,
    {
      ...object,
      properties: {
        a: { type: "string", description: "x" },
        b: { type: "array", items: { type: "number" } },
      },
      required: ["a"],
    },
    { properties: {} },
    { ...object, $schema: "http://json-schema.org/draft-07/schema#" },
    { ...object, properties: { a: { type: "array" } } },
    { ...object, properties: { a: { enum: [1, 2] } } },
    { ...object, properties: { a: { type: "number", minimum: 1, exclusiveMinimum: true } } },
    { ...object, properties: { a: { type: "array", items: [{ type: "string" }] } } },
    { ...object, properties: { a: { $ref: "#/$defs/none" } } },
    { ...object, properties: { a: { $ref: "#" } } },
    { ...object, properties: { a: { $ref: "https://example.com/schema" } } },
    { ...object, properties: { a: { $ref: "#/$defs/a" } }, $defs: { a: { type: "string" } } },
    { ...object, anyOf: [{ required: ["a"] }, { required: ["b"] }] },
    { ...object, properties: { "a[b]": { type: "string" } } },
    { ...object, properties: { a: { anyOf: [{ type: "string" }, { type: "null" }] } } },
  ];
  it("is what the plugin that repairs them does something about", async () => {
    const lines: string[] = [];
    const host = { log: (_: unknown, line: string) => void lines.push(line) };
    const plugin = schemaRepair as unknown as {
      setup(
        options: object,
        host: object,
      ): { list(tools: readonly object[], server: string): unknown[] };
    };
    const { list } = plugin.setup({ unrepairable: "hide" }, host);
    for (const inputSchema of corpus) {
      const given = { name: "t", inputSchema };
      const [shown] = list([given], "s");
      const flaws = lintTool(given);
      assert.equal(shown !== given, flaws.size > 0, JSON.stringify([inputSchema, ...flaws]));
    }
  });
});

describe("a tool", () => {
  for (const [what, schema, wanted] of [
    [
      "with a schema that is fine",
      { type: "object", properties: { a: { type: "array", items: {} } } },
      [],
    ],
    [
      "with one definition that is used twice",
      {
        type: "object",
        properties: { a: { $ref: "#/$defs/a" }, b: { $ref: "#/$defs/a" } },
        $defs: { a: { type: "string" } },
      },
      [],
    ],
    ["with a reference to itself", { type: "object", properties: { a: { $ref: "#" } } }, ["TM913"]],
    [
      "with a pointer that has escapes in it",
      {
        type: "object",
        properties: { a: { $ref: "#/$defs/x~1y" } },
        $defs: { "x/y": { type: "string" } },
      },
      [],
    ],
    [
      "with an array of anything",
      { type: "object", properties: { a: { type: "array" } } },
      ["TM912"],
    ],
    [
      "with values without a type",
      { type: "object", properties: { a: { enum: ["x"] } } },
      ["TM912"],
    ],
    [
      "with a list of items",
      { type: "object", properties: { a: { type: "array", items: [{}] } } },
      ["TM911"],
    ],
    [
      "with everything wrong deep inside",
      { type: "object", properties: { a: { anyOf: [{ properties: { b: { $ref: "#/no" } } }] } } },
      ["TM914"],
    ],
  ] as const) {
    it(`${what} has ${wanted.length === 0 ? "no flaws" : wanted.join()}`, () => {
      assert.deepEqual([...lintTool({ name: "t", inputSchema: schema })], wanted);
    });
  }

  it("that is nested without end takes no time", () => {
    let schema: object = { type: "string" };
    for (let depth = 0; depth < 5000; depth++) schema = { anyOf: [schema] };
    lintTool({ inputSchema: { type: "object", properties: { a: schema } } });
  });
});

describe("findings on a narrow terminal", () => {
  it("wrap at words, below their own text", () => {
    const style = { ...new Terminal({ NO_COLOR: "1" }).stdout, width: 40 };
    const finding: Finding = {
      code: "TM201",
      subject: "notes",
      text: "The program of this server is not installed here.",
      advice: "Install it, or correct its name in the manifest.",
    };
    const [head = "", ...rest] = describeFindings([finding], true, style).split("\n").slice(0, -1);
    assert.match(head, /^error {3}TM201 {2}notes: The program/);
    assert.ok(rest.length >= 3);
    for (const line of [head, ...rest]) assert.ok(line.length <= 40, line);
    for (const line of rest) assert.match(line, /^ {15}\S/);
  });
});
