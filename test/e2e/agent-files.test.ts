import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it as nodeTest } from "node:test";
import {
  AGENT_TYPE,
  AGENT_YAML,
  digestOf,
  MANIFEST_TYPE,
  type OciRegistry,
  withOciRegistry,
} from "../fixtures/oci-registry.ts";
import { type CommandOutput, run, runCommand, startOn } from "../harness/command.ts";
import { it, TEST_OPTIONS, type TestFolder, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { missingPrograms, skipWithout } from "../harness/requirements.ts";
import { poll, withDeadline } from "../harness/wait.ts";

/** A manifest with a model that calls the tool of an agent's own server, and then answers. */
const MANIFEST = `[models.main]
provider = "script"
script = "answers.toml"
`;
const ANSWERS = `[[turns]]
when = "hello"
toolCalls = [{ name = "scripted__only" }]
[[turns]]
after = "scripted__only"
when = "no tool"
text = "There is no tool."
[[turns]]
after = "scripted__only"
text = "The tool has answered."
`;

/** An agent that brings a server, which logs its start. */
function agentWithServer(folder: TestFolder): string {
  const { command, args } = scripted("--bare --tool only");
  const server = {
    type: "mcp",
    name: "scripted",
    command,
    args,
    env: { SCRIPTED_LOG: join(folder.dir, "own.log") },
  };
  const root = {
    model: "main",
    description: "Uses a tool.",
    instruction: "Use it.",
    toolsets: [server],
  };
  return JSON.stringify({ agents: { root } });
}

function withAgents<T>(use: (folder: TestFolder) => Promise<T>): Promise<T> {
  return withTestFolder(MANIFEST, (folder) => {
    writeFileSync(join(folder.dir, "answers.toml"), ANSWERS);
    return use(folder);
  });
}

/** Writes files into the user's own folder for agents. */
function writeAgents({ dir }: TestFolder, files: Readonly<Record<string, string>>): void {
  const own = join(dir, "config/toolmux/agents");
  mkdirSync(own, { recursive: true });
  for (const [name, text] of Object.entries(files)) writeFileSync(join(own, name), text);
}

const store = ({ dir }: TestFolder): string => join(dir, "data/toolmux/agents");

/** What commands print with `--json`. */
interface Printed {
  readonly agents: readonly {
    readonly name: string;
    readonly spec: string;
    readonly usable: boolean;
    readonly problem?: string;
  }[];
  readonly error: { readonly code: string };
  readonly entry: string;
  readonly trusted: boolean;
  readonly digest: string;
}

function json({ stdout }: CommandOutput): Printed {
  return JSON.parse(stdout) as Printed;
}

/** Lists the agents with a key for the model of `AGENT_YAML`. */
async function listWithKey(folder: TestFolder): Promise<Printed> {
  const args = ["agents", "--json", "--config", folder.config];
  return json(await runCommand(folder, args, { env: { OPENAI_API_KEY: "key" } }));
}

/** What the store has: each reference, and whether all of it is there; no file that belongs to none. */
async function checkStore(folder: TestFolder, expected: readonly string[]): Promise<void> {
  const listed = await listWithKey(folder);
  assert.deepEqual(
    listed.agents.map(({ spec, problem }) => [spec, problem]),
    expected.map((spec) => [spec, undefined]),
  );
}

describe("toolmux agents", () => {
  it("pulls, lists, shows and removes agents of registries", () =>
    withOciRegistry((registry) =>
      withAgents(async (folder) => {
        const reference = `${registry.host}/team/pirate:latest`;
        const pulled = await run(folder, "agents", "pull", `${registry.host}/team/pirate`);
        assert.deepEqual([pulled.code, pulled.stderr], [0, ""]);
        assert.match(pulled.stdout, /^pulled .*\/team\/pirate:latest \(sha256:[0-9a-f]{64}\)/);
        assert.equal(statSync(join(store(folder), "refs.json")).mode & 0o777, 0o600);
        await checkStore(folder, [reference]);
        const shown = json(await run(folder, "agents", "show", "pirate", "--json"));
        assert.deepEqual([shown.entry, shown.trusted], ["root", true]);
        assert.equal((await run(folder, "agents", "remove", "pirate")).code, 0);
        await checkStore(folder, []);
        assert.deepEqual(readdirSync(join(store(folder), "sha256")), []);
      }),
    ));

  for (const [args, code, exit] of [
    [["agents", "pull", "x y"], "usage", 2],
    [["agents", "pull", "127.0.0.1:1/x/y"], "unreachable", 3],
    [["agents", "show", "nobody"], "agentNotFound", 2],
    [["agents", "show", "/etc/passwd"], "notTrusted", 2],
    [["agents", "remove", "nobody"], "agentNotFound", 2],
    [["agents", "frobnicate"], "usage", 2],
    [["agents", "show"], "usage", 2],
  ] as const) {
    it(`fails for ${args.join(" ")} with ${code}, and exit code ${exit}`, () =>
      withAgents(async (folder) => {
        const output = await run(folder, ...args, "--json");
        assert.equal(output.code, exit);
        assert.equal(json(output).error.code, code);
      }));
  }

  it("tells each problem of a file on a line of its own, with its place", () =>
    withAgents(async (folder) => {
      mkdirSync(join(folder.dir, "config/toolmux/agents"), { recursive: true });
      const file = join(folder.dir, "config/toolmux/agents/bad.yaml");
      writeFileSync(file, "agents:\n  root:\n    instruction: [1]\n    toolsets: {}\n");
      for (const args of [
        ["agents", "show", "bad.yaml"],
        ["run", "bad.yaml", "hello"],
        ["trust", file],
      ]) {
        const { code, stderr } = await run(folder, ...args);
        assert.equal(code, 2);
        const lines = stderr.split("\n").filter((line) => line.startsWith(file));
        const places = lines.map((line) => line.slice(file.length).split(" ", 1)[0]);
        assert.deepEqual(places, [":3:18:", ":4:15:"], stderr);
      }
    }));

  it("says in a list and for one agent of a file that its model or the key does not exist", () =>
    withAgents(async (folder) => {
      writeAgents(folder, {
        "good.yaml": AGENT_YAML.replace("openai/gpt-x", "main"),
        "keyless.yaml": AGENT_YAML,
        "lost.yaml": AGENT_YAML.replace("openai/gpt-x", "test"),
      });
      const { agents } = json(await run(folder, "agents", "--json"));
      const problems = [undefined, /toolmux secret set openai/, /There is no model "test"/];
      assert.equal(agents.length, problems.length);
      for (const [index, expected] of problems.entries()) {
        const { name = "", usable, problem } = agents[index] ?? {};
        assert.equal(usable, expected === undefined, name);
        if (expected !== undefined) assert.match(problem ?? "", expected);
        const [shown] = json(await run(folder, "agents", "show", name, "--json")).agents;
        assert.deepEqual([shown?.usable, shown?.problem], [usable, problem], name);
        assert.equal((await run(folder, "run", name, "hello")).code === 0, usable, name);
      }
      const { stdout } = await run(folder, "agents", "show", "lost.yaml");
      assert.match(stdout, /There is no model "test"/);
    }));

  it("shows which tools of the hub and which of its own servers an agent of a file has", () =>
    withAgents(async (folder) => {
      const toml = (more: string): string =>
        `${more}[agents.w]\nmodel = "main"\ninstruction = "I"\ntools = { servers = ["s"] }\n`;
      writeAgents(folder, {
        "hub.toml": toml(""),
        "own.toml": toml('[servers.s]\ncommand = "x"\n'),
        "own.yaml": agentWithServer(folder),
      });
      for (const [name, lines] of [
        ["hub.toml", ['  tools of the hub: {"servers":["s"]}']],
        ["own.toml", ['  tools of the hub and of its own servers: {"servers":["s"]}']],
        ["own.yaml", ['  tools of its own servers: {"servers":["scripted"]}']],
      ] as const) {
        const { stdout } = await run(folder, "agents", "show", name);
        const shown = stdout.split("\n").filter((line) => line.startsWith("  tools of"));
        assert.deepEqual(shown, lines);
      }
    }));

  it("authorizes itself with a secret that the manifest names, and does not show it", () =>
    withOciRegistry((registry) =>
      withAgents(async (folder) => {
        registry.auth = { scheme: "bearer", user: "ann:s3cret-word" };
        const credentials = `[agentFiles.credentials]\n"${registry.host}" = "\${secret:reg}"\n`;
        writeFileSync(folder.config, MANIFEST + credentials);
        const args = ["agents", "pull", `${registry.host}/team/pirate`, "--config", folder.config];
        for (const [secret, code] of [
          ["ann:other-word", 3],
          ["ann:s3cret-word", 0],
        ] as const) {
          const env = { TOOLMUX_SECRET_REG: secret };
          const output = await runCommand(folder, args, { env });
          assert.equal(output.code, code, output.stderr);
          assert.ok(!(output.stdout + output.stderr).includes("-word"));
        }
      }),
    ));

  it("stores what two processes pull at once", () =>
    withOciRegistry((registry) =>
      withAgents(async (folder) => {
        const names = ["pirate:latest", "a:1", "b:1", "c:1"];
        for (const name of names) {
          const [repository = "", tag = ""] = name.split(":");
          registry.putAgent(`team/${repository}`, tag, AGENT_YAML.replace("Arr", name));
        }
        const references = names.map((name) => `${registry.host}/team/${name}`);
        const pulls = references.map((one) => run(folder, "agents", "pull", one));
        assert.deepEqual(
          (await Promise.all(pulls)).map(({ code }) => code),
          [0, 0, 0, 0],
        );
        await checkStore(folder, references.toSorted());
      }),
    ));

  /** Kills a pull with SIGKILL when `when` says so, and pulls again. */
  async function killAndPullAgain(
    registry: OciRegistry,
    folder: TestFolder,
    when: () => Promise<unknown>,
  ): Promise<void> {
    const reference = `${registry.host}/team/pirate`;
    const command = startOn(folder, "agents", "pull", reference);
    await when();
    command.signal("SIGKILL");
    await command.waitForExit(10_000);
    registry.intercept = () => false;
    const listed = await listWithKey(folder);
    assert.ok(listed.agents.every(({ problem }) => problem === undefined));
    assert.equal((await run(folder, "agents", "pull", reference)).code, 0);
    await checkStore(folder, [`${reference}:latest`]);
    assert.equal(readdirSync(join(store(folder), "sha256")).length, 2);
    // A file of a process that waited for the lock is removed when it is old.
    const left = readdirSync(store(folder)).filter((name) => !/^agents\.lock\..*draft$/.test(name));
    assert.deepEqual(left.toSorted(), ["refs.json", "sha256"]);
  }

  it("leaves nothing half when a pull is killed while the agent arrives", () =>
    withOciRegistry((registry) =>
      withAgents(async (folder) => {
        const half = new Promise((resolve) => {
          registry.intercept = ({ path }, response) => {
            if (!path.includes("/blobs/")) return false;
            response.writeHead(200, { "content-length": String(AGENT_YAML.length) });
            response.write(AGENT_YAML.slice(0, 20), resolve);
            return true;
          };
        });
        await killAndPullAgain(registry, folder, async () => {
          await half;
          assert.ok(!existsSync(join(store(folder), "refs.json")));
        });
      }),
    ));

  it("leaves nothing half when a pull is killed while it writes", () =>
    withOciRegistry((registry) =>
      withAgents((folder) =>
        killAndPullAgain(registry, folder, () =>
          poll(
            10_000,
            () => "the first file of the store",
            () => (existsSync(store(folder)) ? true : undefined),
          ),
        ),
      ),
    ));
});

describe("an agent that brings a command", () => {
  const lastText = ({ stdout }: CommandOutput): unknown =>
    stdout
      .split("\n")
      .flatMap((line) => (line === "" ? [] : [JSON.parse(line) as { type: string; text?: string }]))
      .find(({ type }) => type === "runComplete")?.text;

  it("asks before its tools are called, as the manifest says", () =>
    withTestFolder(`${MANIFEST}[defaults]\nagentApproval = "always"\n`, async (folder) => {
      writeFileSync(join(folder.dir, "answers.toml"), ANSWERS);
      mkdirSync(join(folder.dir, "config/toolmux/agents"), { recursive: true });
      const file = join(folder.dir, "config/toolmux/agents/tool.yaml");
      writeFileSync(file, agentWithServer(folder));
      await run(folder, "run", "tool.yaml", "hello", "--json");
      const events = folder.log("own").map(({ event }) => event);
      assert.ok(events.includes("list") && !events.includes("call"), events.join(" "));
    }));

  it("works without any manifest, with its own model once it is trusted, which the error says before", () =>
    withAgents(async (folder) => {
      mkdirSync(join(folder.dir, ".cagent/agents"), { recursive: true });
      const file = join(folder.dir, ".cagent/agents/own.json");
      const { command, args: words } = scripted("--bare --tool only");
      const content = {
        models: { main: { provider: "script", script: join(folder.dir, "answers.toml") } },
        servers: { scripted: { command, args: words } },
        agents: { root: { model: "main", instruction: "x", tools: { servers: ["scripted"] } } },
      };
      writeFileSync(file, JSON.stringify(content));
      const alone = (...args: string[]) => runCommand(folder, args);
      const args = ["run", file, "hello", "--approval", "never", "--json"];
      const untrusted = await alone(...args);
      assert.equal(json(untrusted).error.code, "agentInvalid");
      assert.match(untrusted.stdout, /toolmux trust .*own\.json/);
      assert.equal((await alone("trust", file)).code, 0);
      assert.equal(lastText(await alone(...args)), "The tool has answered.");
      const missing = await alone("run", "nobody", "hello", "--json");
      assert.equal(json(missing).error.code, "manifestInvalid");
    }));

  it("never runs it before it is trusted, whatever it comes from", () =>
    withOciRegistry((registry) =>
      withAgents(async (folder) => {
        const yaml = agentWithServer(folder);
        registry.putAgent("team/tool", "latest", yaml);
        await run(folder, "agents", "pull", `${registry.host}/team/tool`);
        mkdirSync(join(folder.dir, ".cagent/agents"), { recursive: true });
        const file = join(folder.dir, ".cagent/agents/tool.yaml");
        writeFileSync(file, yaml);
        for (const name of ["tool", file]) {
          const args = ["run", name, "hello", "--approval", "never", "--json"];
          const untrusted = await run(folder, ...args);
          assert.equal(lastText(untrusted), "There is no tool.");
          assert.match(untrusted.stderr, /is not trusted, so it may not run .*toolmux trust /);
          await run(folder, "agents", "show", name);
        }
        for (const command of ["list", "agents", "check"]) await run(folder, command);
        assert.deepEqual(folder.log("own"), []);
        for (const name of ["tool", file]) {
          const trusted = await run(folder, "trust", name);
          assert.equal(trusted.code, 0);
          assert.match(trusted.stdout, /server scripted: .*scripted\.mjs --bare --tool only/);
          const args = ["run", name, "hello", "--approval", "never", "--json"];
          assert.equal(lastText(await run(folder, ...args)), "The tool has answered.");
        }
        assert.ok(folder.log("own").some(({ event }) => event === "call"));
        const before = folder.log("own").length;
        writeFileSync(file, yaml.replace("Use it.", "Use it!"));
        const changed = await run(folder, "run", file, "hello", "--approval", "never", "--json");
        assert.equal(lastText(changed), "There is no tool.");
        assert.equal(folder.log("own").length, before);
      }),
    ));
});

describe("a conversation with an agent of a file", () => {
  it("goes on with the trust that the file has then", () =>
    withAgents(async (folder) => {
      mkdirSync(join(folder.dir, ".cagent/agents"), { recursive: true });
      const file = join(folder.dir, ".cagent/agents/tool.yaml");
      writeFileSync(file, agentWithServer(folder));
      assert.equal((await run(folder, "trust", file)).code, 0);
      const chat = (...args: readonly string[]): Promise<CommandOutput> => {
        const all = ["chat", ...args, "--approval", "never", "--config", folder.config];
        return runCommand(folder, all, { input: "hello\n" });
      };
      const first = await chat(file);
      assert.equal(first.stdout, "The tool has answered.\n", first.stderr);
      const again = await chat("--resume");
      assert.equal(again.stdout, "The tool has answered.\n", again.stderr);
      assert.match(again.stderr, /goes on with "hello": 4 messages/);
      // Somebody changes the file: its trust was for another content.
      writeFileSync(file, agentWithServer(folder).replace("Use it.", "Use it well."));
      const changed = await chat("--resume");
      assert.equal(changed.stdout, "There is no tool.\n", changed.stderr);
      assert.match(changed.stderr, /is not trusted, so it may not run .*toolmux trust /);
      assert.match(changed.stderr, /goes on with "hello": 8 messages/);
    }));
});

describe("toolmux trust", () => {
  it("takes the names and paths of agents' files that run takes, and trusts the file that run uses", () =>
    withAgents(async (folder) => {
      const foreign = join(folder.dir, ".cagent/agents");
      mkdirSync(foreign, { recursive: true });
      const yaml = AGENT_YAML.replace("openai/gpt-x", "main");
      const toml = '[agents.root]\nmodel = "main"\ninstruction = "I"\napproval = "never"\n';
      writeFileSync(join(foreign, "u.yaml"), `${yaml}    toolsets: [{type: mcp, command: x}]\n`);
      writeFileSync(join(foreign, "v.toml"), toml);
      writeFileSync(join(foreign, "w.toml"), toml);
      // No agent: it is in no folder for agents.
      writeFileSync(join(folder.dir, "u.yaml"), yaml);
      const isTrusted = async (name: string): Promise<boolean> =>
        json(await run(folder, "agents", "show", name, "--json")).trusted;
      assert.equal(await isTrusted("u.yaml"), false);
      for (const [name, file] of [
        ["u.yaml", "u.yaml"],
        ["v.toml", "v.toml"],
        [".cagent/agents/w.toml", "w.toml"],
      ] as const) {
        const { code, stdout } = await run(folder, "trust", name);
        assert.equal(code, 0);
        assert.ok(stdout.startsWith(`trusted: ${join(foreign, file)}\n`), stdout);
        assert.equal(await isTrusted(name), true, name);
      }
      for (const name of ["nobody.yaml", ".cagent/agents/nobody.toml"])
        assert.equal((await run(folder, "trust", name)).code, 2, name);
    }));

  it("says of an agent of the manifest that the manifest's file has to be named", () =>
    withTestFolder(
      `${MANIFEST}[agents.own]\nmodel = "main"\ninstruction = "I"\n`,
      async (folder) => {
        const { code, stderr } = await run(folder, "trust", "own");
        assert.equal(code, 2);
        assert.match(stderr, /toolmux trust FILE/);
      },
    ));
});

describe("Debian's registry", () => {
  const skip = skipWithout({
    isMet: missingPrograms(["docker-registry"]).length === 0,
    tests: "the pull of an agent from a real registry",
    remedy: "install docker-registry",
  });
  /** The password "secret", as bcrypt. */
  const HTPASSWD = "ann:$2b$05$TeZaPasrJsGs2qWrPJhFiuGgVs5.5ix1gG.rRjPqvAjz2m9SoZPu.\n";

  /** Runs the registry, which lets only ann in. @param use gets its host */
  async function withDebianRegistry<T>(dir: string, use: (host: string) => Promise<T>): Promise<T> {
    writeFileSync(join(dir, "htpasswd"), HTPASSWD);
    const config = join(dir, "registry.yml");
    const storage = { filesystem: { rootdirectory: join(dir, "registry") } };
    const auth = { htpasswd: { realm: "test", path: join(dir, "htpasswd") } };
    writeFileSync(
      config,
      JSON.stringify({ version: 0.1, storage, http: { addr: "127.0.0.1:0" }, auth }),
    );
    const child = spawn("docker-registry", ["serve", config], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    try {
      let log = "";
      const host = await withDeadline<string>(
        10_000,
        () => `the registry's address: ${log}`,
        (resolve) => {
          child.stderr.on("data", (chunk: Buffer) => {
            log += chunk.toString();
            const [, address] = /listening on (127\.0\.0\.1:\d+)/.exec(log) ?? [];
            if (address !== undefined) resolve(address);
          });
        },
      );
      return await use(host);
    } finally {
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.kill();
      await ended;
    }
  }

  async function push(host: string): Promise<string> {
    const authorization = `Basic ${Buffer.from("ann:secret").toString("base64")}`;
    const send = async (
      method: string,
      path: string,
      body?: string,
      type = "",
    ): Promise<Response> => {
      const response = await fetch(new URL(path, `http://${host}`), {
        method,
        headers: { authorization, ...(type !== "" && { "content-type": type }) },
        ...(body !== undefined && { body }),
      });
      assert.ok(response.ok, `${method} ${path}: ${response.status}`);
      return response;
    };
    const blobs = [AGENT_YAML, "{}"];
    for (const blob of blobs) {
      const started = await send("POST", "/v2/team/pirate/blobs/uploads/");
      const url = new URL(started.headers.get("location") ?? "", `http://${host}`);
      url.searchParams.set("digest", digestOf(blob));
      await send("PUT", url.pathname + url.search, blob, "application/octet-stream");
    }
    const manifest = JSON.stringify({
      schemaVersion: 2,
      mediaType: MANIFEST_TYPE,
      config: { mediaType: AGENT_TYPE, digest: digestOf("{}"), size: 2 },
      layers: [
        { mediaType: "application/yaml", digest: digestOf(AGENT_YAML), size: AGENT_YAML.length },
      ],
      annotations: { "io.docker.agent.version": "v1.30.0" },
    });
    await send("PUT", "/v2/team/pirate/manifests/1.0", manifest, MANIFEST_TYPE);
    return digestOf(manifest);
  }

  nodeTest(
    "gives an agent to a user whom docker login has written down",
    { ...TEST_OPTIONS, skip },
    () =>
      withTestFolder(MANIFEST, (folder) =>
        withDebianRegistry(folder.dir, async (host) => {
          const digest = await push(host);
          const reference = `${host}/team/pirate:1.0`;
          const pull = (): Promise<CommandOutput> =>
            runCommand(folder, ["agents", "pull", reference, "--json", "--config", folder.config]);
          const refused = await pull();
          assert.equal(json(refused).error.code, "unauthorized");
          mkdirSync(join(folder.dir, ".docker"));
          const auth = Buffer.from("ann:secret").toString("base64");
          const config = JSON.stringify({ auths: { [host]: { auth } } });
          writeFileSync(join(folder.dir, ".docker/config.json"), config);
          assert.deepEqual(json(await pull()), { reference, digest });
          const byDigest = await run(
            folder,
            "agents",
            "pull",
            `${host}/team/pirate@${digest}`,
            "--json",
          );
          assert.equal(json(byDigest).digest, digest);
          const refs = readFileSync(join(store(folder), "refs.json"), "utf8");
          assert.ok(!refs.includes("secret") && refs.includes(digestOf(AGENT_YAML)));
        }),
      ),
  );
});
