import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { StdioServer } from "../../src/manifest/manifest.ts";
import { type ResolvedServer, resolveServer } from "../../src/manifest/resolve.ts";
import { getServer, loadText, plainCopy } from "../fixtures/manifest/manifest-folder.ts";
import { itIn } from "../harness/in-folder.ts";

const ENV = {
  HOME: "/home/me",
  TOKEN: "token-value",
  EMPTY: "",
  TRICKY: "${env:TOKEN} $${x} ${file:/etc/passwd}",
  "ProgramFiles(x86)": "C:\\Programs",
};

/** A server with one argument; `syntax` says in which kind of file it stands. */
async function makeServer(
  arg: string,
  syntax: "toolmux" | "client" = "toolmux",
): Promise<StdioServer> {
  const key = syntax === "toolmux" ? "servers" : "mcpServers";
  const text = JSON.stringify({ [key]: { s: { command: "x", args: [arg] } } });
  const { manifest } = await loadText(text, "a.json");
  return getServer(manifest, "s");
}

async function resolveArg(arg: string, syntax: "toolmux" | "client" = "toolmux") {
  const { args } = await resolveServer(await makeServer(arg, syntax), ENV, "/work");
  return args[0];
}

describe("interpolation", () => {
  for (const [text, value] of [
    ["plain", "plain"],
    ["", ""],
    ["${env:TOKEN}", "token-value"],
    ["a${env:TOKEN}b${env:HOME}c", "atoken-valueb/home/mec"],
    ["${env:EMPTY}", ""],
    ["${env:EMPTY:-default}", "default"],
    ["${env:NONE:-default}", "default"],
    ["${env:NONE:-}", ""],
    ["${env:NONE:-a:-b}", "a:-b"],
    ["${env:TOKEN:-default}", "token-value"],
    ["${env:ProgramFiles(x86)}", "C:\\Programs"],
    ["${env:TRICKY}", "${env:TOKEN} $${x} ${file:/etc/passwd}"],
    ["$${env:TOKEN}", "${env:TOKEN}"],
    ["$${x}${env:TOKEN}$${", "${x}token-value${"],
    ["$HOME $ $$ {x} }", "$HOME $ $$ {x} }"],
    ["${env:TOKEN}}", "token-value}"],
    ["$", "$"],
  ] as const) {
    it(`in our own files makes ${JSON.stringify(text)} into ${JSON.stringify(value)}`, async () => {
      assert.equal(await resolveArg(text), value);
    });
  }

  for (const [text, value] of [
    ["${TOKEN}", "token-value"],
    ["${env:TOKEN}", "token-value"],
    ["${NONE:-default}", "default"],
    ["${env:NONE:-default}", "default"],
    ["${workspaceFolder}/a", "/work/a"],
    ["${workspaceFolderBasename}", "work"],
    ["${userHome}${pathSeparator}${/}", "/home/me//"],
    ["$${TOKEN}", "$token-value"],
    ["${TRICKY}", "${env:TOKEN} $${x} ${file:/etc/passwd}"],
  ] as const) {
    it(`in a client's file makes ${JSON.stringify(text)} into ${JSON.stringify(value)}`, async () => {
      assert.equal(await resolveArg(text, "client"), value);
    });
  }

  const UNKNOWN =
    "the unknown placeholder ${command:…}; known placeholders: ${env:NAME} and ${file:PATH}";
  const INPUT =
    "${input:…}, which only editors support; set an environment variable and write ${env:NAME}";
  for (const [text, message] of [
    ["${input:key}", INPUT],
    ["${command:pick}", UNKNOWN],
    ["${A:-${B}}", "a ${…} inside another ${…}, which is not supported"],
    ["${A", "a ${ without a closing }"],
    ["a\0b", "a NUL character, which a process cannot get"],
  ] as const) {
    it(`in a client's file refuses ${JSON.stringify(text)}`, async () => {
      await assert.rejects(resolveArg(text, "client"), {
        name: "HubError",
        code: "notSupported",
        server: "s",
        step: "resolve",
        message: `server "s" cannot be started: args[0] contains ${message}`,
      });
    });
  }

  it("names every missing variable at once, and no value of another", async () => {
    const { manifest } = await loadText(
      `[servers.s]\ncommand = "\${env:NO_1}"\nargs = ["\${env:TOKEN}\${env:NO_2}"]\nenv.A = "\${env:toString}"`,
    );
    const env = Object.assign(Object.create(null), ENV);
    await assert.rejects(resolveServer(getServer(manifest, "s"), env), {
      code: "valueMissing",
      server: "s",
      step: "resolve",
      message:
        'server "s" cannot be started: command needs the environment variable NO_1, which is not set; args[0] needs the environment variable NO_2, which is not set; env.A needs the environment variable toString, which is not set',
    });
  });

  itIn("reads files relative to the manifest, without their last line end", async (folder) => {
    await folder.write("conf/key", "s3cret-key\n");
    await folder.write("conf/sub/two", "line one\r\nline two\r\n");
    await folder.write("home/.token", "${env:TOKEN}\n\n");
    const paths = ["key", "./sub/two", "~/.token", `${folder.root}/conf/key`];
    const forms = JSON.stringify(paths.map((path) => `\${file:${path}}`));
    const text = `[servers.s]\ncommand = "x"\nargs = ${forms}`;
    const file = await folder.write("conf/a.toml", text);
    const { manifest } = await folder.loadValid({ files: [file] });
    const { args } = await resolveServer(getServer(manifest, "s"), { HOME: folder.home }, "/");
    const lines = ["line one\r\nline two", "${env:TOKEN}\n"];
    assert.deepEqual(args, ["s3cret-key", ...lines, "s3cret-key"]);
  });

  itIn("says which file cannot be used and why", async (folder) => {
    await folder.write("big", "x".repeat(65_537));
    await folder.write("fits", "x".repeat(65_536));
    await folder.write("binary", new Uint8Array([0xff, 0xfe]));
    await folder.write("folder/x", "");
    const resolve = async (path: string): Promise<ResolvedServer> => {
      const text = JSON.stringify({ servers: { s: { command: "x", args: [`\${file:${path}}`] } } });
      const file = await folder.write("a.json", text);
      const { manifest } = await folder.loadValid({ files: [file] });
      return resolveServer(getServer(manifest, "s"), {});
    };
    await resolve("fits");
    for (const [path, why] of [
      ["none", "does not exist"],
      ["big", "is longer than 65536 bytes"],
      ["binary", "is not UTF-8 text"],
      ["folder", "is a folder, not a file"],
      ["/dev/zero", "is not a regular file"],
    ] as const) {
      await assert.rejects(resolve(path), ({ message }: Error) => {
        const needs = 'server "s" cannot be started: args[0] needs the file ';
        assert.equal(folder.shorten(message), `${needs}${path}, which ${why}`);
        return true;
      });
    }
  });
});

describe("a resolved server", () => {
  const resolveText = async (lines: string, env: Record<string, string> = {}) => {
    const { manifest } = await loadText(`[servers.s]\n${lines}`);
    const server: StdioServer = { ...getServer(manifest, "s"), baseDir: "/base" };
    return resolveServer(server, { ...ENV, ...env }, "/work");
  };

  for (const [command, expected] of [
    ["npx", "npx"],
    ["./bin/x", "/base/bin/x"],
    ["bin/x", "/base/bin/x"],
    ["/usr/bin/x", "/usr/bin/x"],
    ["~/bin/x", "/home/me/bin/x"],
    ["${env:HOME}/x", "/home/me/x"],
    ["..", ".."],
  ] as const) {
    it(`runs ${command} as ${expected}`, async () => {
      assert.equal((await resolveText(`command = "${command}"`)).command, expected);
    });
  }

  for (const [cwd, expected] of [
    [".", "/base"],
    ["sub", "/base/sub"],
    ["/abs", "/abs"],
    ["~", "/home/me"],
    ["~/sub", "/home/me/sub"],
  ] as const) {
    it(`with cwd = "${cwd}" starts in ${expected}`, async () => {
      assert.equal((await resolveText(`command = "x"\ncwd = "${cwd}"`)).cwd, expected);
    });
  }

  it("without a cwd starts in the hub's own", async () => {
    assert.equal((await resolveText(`command = "x"`)).cwd, undefined);
  });

  it("gets the inherited variables that are set, and over them its own", async () => {
    const { env } = await resolveText(
      `command = "x"\ninheritEnv = ["TOKEN", "EMPTY", "NONE", "HOME"]\nenv = { HOME = "/other", __proto__ = "p" }`,
    );
    const pairs = Object.entries(env).map((pair) => pair.join("="));
    assert.deepEqual(pairs, ["TOKEN=token-value", "EMPTY=", "HOME=/other", "__proto__=p"]);
    assert.deepEqual(plainCopy(Object.keys(Object.prototype)), []);
  });

  it("lists as secrets what it took from variables and files, and what its own name tells", async () => {
    const { secrets } = await resolveText(
      `command = "x"
args = ["\${env:A}", "\${env:SHORT}", "\${env:HOME}", "\${env:NONE:-default-value}"]
inheritEnv = ["MY_PASSWORD", "REGION"]
env = { API_KEY = "literal-key", MODE = "literal-mode", PART = "x-\${env:A}" }`,
      { A: "value-of-a", SHORT: "true", MY_PASSWORD: "inherited-password", REGION: "eu-west-1" },
    );
    assert.deepEqual(secrets, ["inherited-password", "literal-key", "value-of-a"]);
  });
});

describe("what a plugin fills in", () => {
  /** A server with one form of a plugin's in an argument, and one in a variable. */
  const makeServerOf = async (arg: string, more = ""): Promise<StdioServer> => {
    const text = `[[plugins]]\nuse = "x"\n[servers.s]\ncommand = "x"\nargs = ["${arg}"]\n${more}`;
    return getServer((await loadText(text)).manifest, "s");
  };
  const words = 'server "s" cannot be started: ';

  it("is asked for by what stands behind the colon, and by the server, at each start", async () => {
    const server = await makeServerOf("a${vault:db/pw:-x}b${env:TOKEN}", 'env.A = "${op://x}"');
    const asked: string[] = [];
    const answer = (path: string, name: string): Promise<string> => {
      asked.push(`${path} ${name}`);
      return Promise.resolve(`${path}-${asked.length}-value`);
    };
    const schemes = new Map(["vault", "op"].map((name) => [name, answer]));
    const one = await resolveServer(server, ENV, "/work", schemes);
    assert.deepEqual(one.args, ["adb/pw:-x-1-valuebtoken-value"]);
    assert.deepEqual(plainCopy(one.env), { A: "//x-2-value" });
    const two = await resolveServer(server, ENV, "/work", schemes);
    assert.deepEqual(plainCopy(two.env), { A: "//x-4-value" });
    assert.deepEqual(asked, ["db/pw:-x s", "//x s", "db/pw:-x s", "//x s"]);
  });

  it("counts as secret, and is not looked into again", async () => {
    const server = await makeServerOf("x-${vault:a}");
    const schemes = new Map([["vault", () => Promise.resolve("${env:TOKEN}")]]);
    const { args, secrets } = await resolveServer(server, ENV, "/work", schemes);
    assert.deepEqual([args, secrets], [["x-${env:TOKEN}"], ["${env:TOKEN}"]]);
  });

  it("that no plugin has is told as any unknown form", async () => {
    const server = await makeServerOf("${vault:a}");
    const schemes = new Map([["op", () => Promise.resolve("")]]);
    for (const given of [schemes, undefined]) {
      await assert.rejects(resolveServer(server, ENV, "/work", given), {
        name: "HubError",
        code: "notSupported",
        server: "s",
        step: "resolve",
        message: `${words}args[0] contains the unknown placeholder \${vault:…}; known placeholders: \${env:NAME}, \${file:PATH}, \${secret:NAME} and \${cmd:COMMAND}; no plugin provides it`,
      });
    }
  });

  it("that is not there is told with all else that is missing", async () => {
    const server = await makeServerOf("${vault:db/pw}", 'env = { A = "${env:NONE}" }');
    const schemes = new Map([["vault", () => Promise.reject(new Error("sealed"))]]);
    await assert.rejects(resolveServer(server, ENV, "/work", schemes), {
      code: "valueMissing",
      server: "s",
      step: "resolve",
      message: `${words}args[0] needs \${vault:db/pw}: sealed; env.A needs the environment variable NONE, which is not set`,
    });
  });

  it("stays a fault in a client's file", async () => {
    const schemes = new Map([["vault", () => Promise.resolve("x")]]);
    const server = await makeServer("${vault:a}", "client");
    await assert.rejects(resolveServer(server, ENV, "/work", schemes), {
      code: "notSupported",
      message: `${words}args[0] contains the unknown placeholder \${vault:…}; known placeholders: \${env:NAME} and \${file:PATH}`,
    });
  });
});
