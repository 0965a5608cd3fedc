import assert from "node:assert/strict";
import { chmod, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { describeServer, withInstalledRunner } from "../../src/operations/server-description.ts";
import { hintsFor } from "../../src/operations/hints.ts";
import { HubError } from "../../src/base/errors.ts";
import { formatPackage, parsePackage } from "../../src/manifest/package.ts";
import { resolveServer } from "../../src/manifest/resolve.ts";
import { openStdioTransport } from "../../src/transport/stdio.ts";
import { TransportRecorder } from "../contract/transport.ts";
import {
  findProblems,
  getServer,
  loadText,
  plainCopy,
  type ManifestFolder,
} from "../fixtures/manifest/manifest-folder.ts";
import { itIn } from "../harness/in-folder.ts";

const DIGEST = `sha256:${"0a".repeat(32)}`;
const docker = (name: string): [text: string, name: string] => [`docker:${name}`, name];

async function makeServer(lines: string, env: Record<string, string> = {}) {
  const { manifest } = await loadText(`[servers.s]\n${lines}`);
  const server = getServer(manifest, "s");
  const { command, args, alternatives = [] } = await resolveServer(server, env, "/work");
  const ways = [{ command, args }, ...alternatives];
  return { server, ways: ways.map((way) => [way.command, ...way.args].join(" ")) };
}

describe("a package", () => {
  for (const [text, name, version] of [
    ["npm:server", "server"],
    ["npm:@scope/name@1.2.3-beta.1+x", "@scope/name", "1.2.3-beta.1+x"],
    ["npm:@scope/name@latest", "@scope/name", "latest"],
    ["npm:name@^2", "name", "^2"],
    ["pypi:mcp-server-git", "mcp-server-git"],
    ["pypi:awslabs.x_y==2024.1.post1", "awslabs.x_y", "2024.1.post1"],
    ...["mcp/fetch", "ghcr.io/owner/name:v1.2", "localhost:5000/a/b_c"].map(docker),
    ...[`name@${DIGEST}`, `name:1@${DIGEST}`].map(docker),
  ] as const) {
    it(`is understood, and written as it was: ${text}`, () => {
      const parsed = parsePackage(text);
      assert.deepEqual([parsed?.name, parsed?.version], [name, version]);
      assert.equal(parsed && formatPackage(parsed), text);
    });
  }

  const names = "npm: npm:-y npm:--registry=x npm:@-x/y npm:@scope/-y npm:a@-1 npm:./a npm:/a";
  const others = "npm:../a npm:a/b npm:https://x npm:${env:X} npm:a@ npm:a@file:../x pypi:-r gem:x";
  const images = "pypi:a>=1 pypi:a==-1 docker:-v docker:Name docker:a:-x docker:a//b server";
  for (const text of [
    ...`${names} ${others} ${images} pypi:git+https://x docker:a@sha256:12`.split(" "),
    "",
    "npm:a b",
    "npm:a@1 b",
    "npm:a\n",
    "pypi:a @ https://x",
    "docker:a --privileged",
    `npm:${"x".repeat(400)}`,
  ]) {
    it(`is none, and could be no option of a runner: ${JSON.stringify(text.slice(0, 40))}`, async () => {
      assert.equal(parsePackage(text), undefined);
      const [problem = ""] = await findProblems(`[servers.s]\npackage = ${JSON.stringify(text)}`);
      assert.match(problem, /^t\.toml:2:11: servers\.s\.package: expected a package such as "npm:/);
    });
  }

  for (const [lines, ...expected] of [
    [
      'package = "npm:@s/n@1"\nargs = ["--root", "${env:X}"]',
      "npx -y @s/n@1 --root x",
      "bunx @s/n@1 --root x",
      "deno run -A npm:@s/n@1 --root x",
    ],
    ['package = "npm:n"\nrunner = "deno"', "deno run -A npm:n"],
    ['package = "pypi:n==1.2"\nargs = ["a"]', "uvx n@1.2 a", "pipx run --spec n==1.2 n a"],
    ['package = "pypi:n"', "uvx n", "pipx run n"],
    [
      'package = "docker:o/n:1"\nargs = ["a"]\nenv = { A = "secret", B = "" }\ninheritEnv = ["B", "C"]',
      "docker run -i --rm --init --label=toolmux.server=s --env=A --env=B --env=C o/n:1 a",
      "podman run -i --rm --init --label=toolmux.server=s --env=A --env=B --env=C o/n:1 a",
    ],
  ] as const) {
    it(`is run by the first of: ${expected.join(", ")}`, async () => {
      assert.deepEqual((await makeServer(lines, { X: "x" })).ways, expected);
    });
  }

  it("is shown with what will run it, and without the values of its variables", async () => {
    const { server } = await makeServer('package = "docker:o/n"\nenv.TOKEN = "sk-secret"');
    const run = "docker run -i --rm --init --label=toolmux.server=s --env=TOKEN o/n";
    assert.equal(describeServer(server), `docker:o/n, by TOKEN=… ${run}`);
  });

  it("means nothing in a client's file", async () => {
    const servers = { a: { package: "npm:x", command: "y" }, b: { package: "npm:x" } };
    const { manifest } = await loadText(JSON.stringify({ mcpServers: servers }), "a.json");
    const kinds = manifest.servers.map(({ kind }) => kind);
    assert.deepEqual(kinds, ["stdio", "unsupported"]);
    assert.equal(getServer(manifest, "a").command, "y");
  });
});

/** Programs that note what they are given, in a folder of their own. */
async function install(folder: ManifestFolder, names: readonly string[]): Promise<string> {
  for (const name of names) {
    const note = join(folder.root, `${name}.args`);
    const script = `#!/bin/sh\nprintf '%s\\n' "$@" "TOKEN=$TOKEN" > '${note}'\nprintf '{"jsonrpc":"2.0","method":"started"}\\n'\nread -r line\n`;
    await chmod(await folder.write(`bin/${name}`, script), 0o755);
  }
  return join(folder.root, "bin");
}

/** Starts the server of a manifest with a PATH; what the program was given, a line each. */
async function start(
  folder: ManifestFolder,
  lines: string,
  path: string,
  program: string,
): Promise<string[]> {
  const file = await folder.write("toolmux.toml", `[servers.s]\n${lines}`);
  const { manifest } = await folder.loadValid({ files: [file] });
  const server = getServer(manifest, "s");
  const resolved = await resolveServer(server, { T: "value-of-t" }, folder.root);
  const events = new TransportRecorder();
  const limits = { hubEnv: { PATH: path }, maxMessage: 1_000_000 };
  const link = openStdioTransport({ ...resolved, server: "s", ...limits });
  await link.open(events, new AbortController().signal);
  await events.until("its first word", () => events.events.length > 0);
  await link.close();
  return (await readFile(join(folder.root, `${program}.args`), "utf8")).trimEnd().split("\n");
}

describe("the runner of a package", () => {
  const npm = 'package = "npm:@s/n@1"\nargs = ["--x", "${env:T}"]\nenv.TOKEN = "t"';

  for (const [there, used, expected] of [
    [["npx", "bunx", "deno"], "npx", ["-y", "@s/n@1"]],
    [["deno", "bunx"], "bunx", ["@s/n@1"]],
    [["deno"], "deno", ["run", "-A", "npm:@s/n@1"]],
  ] as const) {
    itIn(`is ${used} where there is ${there.join(" and ")}`, async (folder) => {
      const path = await install(folder, there);
      const given = await start(folder, npm, path, used);
      assert.deepEqual(given, [...expected, "--x", "value-of-t", "TOKEN=t"]);
    });
  }

  itIn("is the one that was chosen, whatever else is there", async (folder) => {
    const path = await install(folder, ["npx", "bunx"]);
    const given = await start(folder, `${npm}\nrunner = "bunx"`, path, "bunx");
    assert.equal(given[0], "@s/n@1");
  });

  itIn("of an image gets the values of variables in its own environment", async (folder) => {
    const path = await install(folder, ["podman"]);
    const lines = 'package = "docker:o/n"\nenv.TOKEN = "${env:T}"';
    const given = await start(folder, lines, path, "podman");
    assert.deepEqual(given.slice(-3), ["--env=TOKEN", "o/n", "TOKEN=value-of-t"]);
  });

  const NONE = /^Server "s" needs npx, bunx, or deno: none of them is installed/;
  const INSTALL = "Install Node.js (npx), Bun (bunx), or Deno, which can run npm:n.";
  const PIPX = 'package = "pypi:n"\nrunner = "pipx"';
  for (const [lines, message, remedy] of [
    ['package = "npm:n"', NONE, INSTALL],
    [PIPX, /^"pipx" is not installed/, "Install pipx, which can run pypi:n."],
  ] as const) {
    itIn(`that is missing is told with what to install: ${remedy}`, async (folder) => {
      const { server } = await makeServer(lines);
      const run = start(folder, lines, join(folder.root, "none"), "npx");
      await assert.rejects(run, (error) => {
        assert.ok(error instanceof HubError);
        assert.deepEqual([error.code, error.server, error.step], ["commandNotFound", "s", "spawn"]);
        assert.match(error.message, message);
        assert.equal(hintsFor(error, server, {})[0], remedy);
        return true;
      });
    });
  }

  itIn("is not passed over if it is there but may not be run", async (folder) => {
    const path = await install(folder, ["npx", "bunx"]);
    await chmod(join(path, "npx"), 0o644);
    await assert.rejects(start(folder, npm, path, "bunx"), { code: "notExecutable" });
  });

  itIn(
    "is settled at each start, so that another is used when the first is gone",
    async (folder) => {
      const path = await install(folder, ["npx", "bunx"]);
      await start(folder, npm, path, "npx");
      await chmod(join(path, "npx"), 0o755);
      await rm(join(path, "npx"));
      assert.equal((await start(folder, npm, path, "bunx"))[0], "@s/n@1");
    },
  );

  itIn("is shown as it would be now, or as the best one if none is there", async (folder) => {
    const path = await install(folder, ["pipx"]);
    const { server } = await makeServer('package = "pypi:n==1"\nargs = ["a"]');
    const show = async (PATH: string): Promise<string> =>
      describeServer(await withInstalledRunner(server, { env: { PATH }, cwd: folder.root }));
    assert.equal(await show(path), "pypi:n==1, by pipx run --spec n==1 n a");
    assert.equal(await show("/nowhere"), "pypi:n==1, by uvx n@1 a");
    await install(folder, ["uvx"]);
    assert.equal(await show(path), "pypi:n==1, by uvx n@1 a");
  });
});

it("servers are told apart by all the ways to run their packages", async () => {
  const one = await makeServer('package = "npm:n@1"');
  const two = await makeServer('package = "npm:n@1"\nrunner = "npx"');
  assert.deepEqual(plainCopy(one.server.args), plainCopy(two.server.args));
  assert.notDeepEqual(plainCopy(one.server), plainCopy(two.server));
});
