import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import process from "node:process";
import { after, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { utf8 } from "../../src/base/bytes.ts";
import { HubError } from "../../src/base/errors.ts";
import { runtimeName } from "../../src/base/runtime.ts";
import { readShellPath, resolveCommand } from "../../src/process/path-lookup.ts";
import { childEnvironment, spawnChild } from "../../src/process/child-process.ts";
import { newOwnerTag } from "../../src/process/orphans.ts";
import { openStdioTransport, type StdioTarget } from "../../src/transport/stdio.ts";
import { notification, TransportRecorder } from "../contract/transport.ts";
import { waitFor } from "../harness/wait.ts";
import {
  pidsWithEnv,
  commandLineOf,
  environmentOf,
  isAlive,
  waitUntilExited,
} from "../harness/processes.ts";
import { MEGABYTE, NEVER, type Setup, target, withScript } from "./script-server.ts";

/** Longer than any test: whoever sleeps so long is ended by the link, or the test fails. */
const FOREVER = "sleep 1000";

const folder = mkdtempSync(join(tmpdir(), "toolmux-process-"));
after(() => rmSync(folder, { recursive: true }));

function file(name: string, content: string | Uint8Array, mode = 0o644): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  chmodSync(path, mode);
  return path;
}

/** The error of an open that fails; nothing is left of it. */
async function failure(
  changes: Partial<StdioTarget>,
): Promise<Error & { code?: string; hint?: string }> {
  const mark = randomUUID();
  const events = new TransportRecorder();
  const env = { ...changes.env, MARK: mark };
  const link = openStdioTransport({ ...target("true"), ...changes, env });
  const error = await link.open(events, NEVER).then(
    () => assert.fail("it opened"),
    (thrown: unknown) => thrown,
  );
  await link.close();
  assert.deepEqual(pidsWithEnv(mark), []);
  assert.ok(events.events.every((event) => event === "log"));
  assert.ok(error instanceof Error);
  return error;
}

/** The tags that a process carries. */
function ownersOf(pid: number): string[] {
  const name = "TOOLMUX_OWNER=";
  const line = environmentOf(pid).find((pair) => pair.startsWith(name));
  return line?.slice(name.length).split(",") ?? [];
}

/** What the kernel says that is resident of a process, in bytes. */
function residentOf(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s*(\d+) kB$/m.exec(status)?.[1]) * 1024;
}

interface Counts {
  readonly files: number;
  readonly groups: number;
}

/** Runs a program of test/fixtures/processes in a process of its own until that ends, 20 s at most. */
async function runFixture(
  name: string,
  env: Readonly<Record<string, string>> = {},
): Promise<{ code: number | null; stdout: string }> {
  const path = fileURLToPath(new URL(`../fixtures/processes/${name}`, import.meta.url));
  const args = "Deno" in globalThis ? ["run", "-A", "--no-check", path] : [path];
  const child = spawn(process.execPath, args, {
    env: { PATH: process.env["PATH"], HOME: process.env["HOME"], ...env },
    stdio: ["ignore", "pipe", "inherit"],
    timeout: 20_000,
  });
  let stdout = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
  const [code] = (await once(child, "close")) as [number | null];
  return { code, stdout };
}

async function milliseconds(run: () => Promise<void>): Promise<number> {
  const start = performance.now();
  await run();
  return performance.now() - start;
}

describe("a server that ends", () => {
  const texts = Array.from({ length: 500 }, (_, n) => notification(n, 60));
  const pending = file("pending", texts.map((text) => `${text}\n`).join(""));

  it("is reported with its exit code and the last lines that it wrote to stderr", () => {
    const script = "seq 1 30 >&2; echo >&2; echo 'cannot open the database' >&2; exit 3";
    return withScript(script, async ({ events, closed }) => {
      await closed();
      const [cause] = events.causes;
      assert.equal(cause?.message, 'cannot open the database. Server "x" exited with code 3.');
      assert.deepEqual([cause.code, cause.server], ["connectionLost", "x"]);
      const tail = ["22", "23", "24", "25", "26", "27", "28", "29", "30"];
      assert.deepEqual(cause.stderr, [...tail, "cannot open the database"]);
      assert.equal(events.logs[0], "info stderr 1");
      assert.equal(events.logs.at(-1), "info stderr cannot open the database");
    });
  });

  it("is reported with the signal that killed it", () =>
    withScript("kill -9 $$", async ({ events, closed }) => {
      await closed();
      assert.equal(events.causes[0]?.message, 'Server "x" was killed by signal SIGKILL.');
    }));

  for (const [what, before] of [
    ["", ""],
    [" and a stranger who holds the pipe open", "env -i setsid sleep 20 & "],
  ] as const)
    it(`with output in the pipe${what} is reported after all of it`, () =>
      withScript(`${before}cat ${pending}; exit 5`, async ({ events, closed }) => {
        const took = await milliseconds(closed);
        assert.deepEqual(events.messages, texts);
        assert.equal(events.causes[0]?.message, 'Server "x" exited with code 5.');
        assert.ok(took < 10_000, `seen by exit, not by the end of output: ${took} ms`);
      }));

  it("while reading is paused is reported after all of its output too", () =>
    withScript(`read line; cat ${pending}; exit 5`, async ({ link, events, pids, closed }) => {
      link.pause();
      link.send(utf8(notification(0)));
      await waitUntilExited(pids(), 5000);
      await closed();
      assert.deepEqual(events.messages, texts);
    }));

  it("takes a grandchild of its group that holds its stdout with it", () =>
    withScript(`${FOREVER} & echo $! >&2; exit 4`, async ({ link, events, closed, pids }) => {
      await closed();
      assert.equal(events.causes[0]?.message, 'Server "x" exited with code 4.');
      await waitUntilExited(pids(), 10_000);
      await link.close();
    }));

  it("takes a grandchild that left its group with it, though nobody closed the link", () =>
    withScript(`setsid ${FOREVER} & exit 0`, async ({ closed, pids }) => {
      await closed();
      await waitUntilExited(pids(), 10_000);
    }));

  it("while a big message is written to it breaks nothing", () =>
    withScript("sleep 0.1; exit 7", async ({ link, events, closed }) => {
      for (let n = 0; n < 8; n++) link.send(utf8(notification(n, MEGABYTE)));
      await closed();
      link.send(utf8(notification(9)));
      assert.equal(link.queued, 0);
      assert.equal(events.causes[0]?.message, 'Server "x" exited with code 7.');
    }));

  it("only in its output is reported as such, and ended", () =>
    withScript(`exec 1>&-; exec ${FOREVER}`, async ({ events, closed, pids }) => {
      await closed();
      assert.match(events.causes[0]?.message ?? "", /^Server "x" closed its stdout/);
      await waitUntilExited(pids(), 4000);
    }));
});

describe("close", () => {
  /** Closes the link, which must not take so long. */
  async function closeWithin({ link }: Setup, ms: number): Promise<void> {
    const took = await milliseconds(() => link.close());
    assert.ok(took < ms, `${took} ms`);
  }
  const isReady = ({ events }: Setup): Promise<void> =>
    events.until("ready", () => events.logs.length === 1);

  it("lets a server end by itself when its input ends", () =>
    withScript("cat >/dev/null; echo goodbye >&2", async (setup) => {
      await setup.link.close();
      assert.deepEqual(setup.events.logs, ["info stderr goodbye"]);
    }));

  it("ends a server that ignores the end of its input with SIGTERM", () => {
    const script = `trap 'echo got TERM >&2; exit 0' TERM; echo ready >&2; ${FOREVER} & wait`;
    return withScript(script, async (setup) => {
      await isReady(setup);
      await setup.link.close();
      assert.equal(setup.events.logs.at(-1), "info stderr got TERM");
    });
  });

  it("ends whatever ignores SIGTERM too, wherever it is", () => {
    const script = `trap '' TERM; (setsid ${FOREVER}) & ${FOREVER} & echo ready >&2; wait`;
    return withScript(script, async (setup) => {
      await isReady(setup);
      await become(FOREVER, setup, 2);
      await closeWithin(setup, 10_000);
      assert.equal(setup.events.causes[0]?.message, 'Server "x" was stopped.');
    });
  });

  it("lets a server that is stuck in a write, because reading is paused, see the end of its input", () => {
    const script = "head -c 1000000 /dev/zero; cat >/dev/null; echo goodbye >&2";
    return withScript(script, async (setup) => {
      setup.link.pause();
      await setup.link.close();
      assert.equal(setup.events.causes[0]?.stderr.at(-1), "goodbye");
    });
  });

  it("sweeps what a server that ended at once left in its group and outside of it", () =>
    withScript(`${FOREVER} & setsid ${FOREVER} & exec cat >/dev/null`, async (setup) => {
      await setup.running(FOREVER);
      await closeWithin(setup, 1500);
      assert.deepEqual(setup.pids(), []);
    }));

  it("sweeps a member of the group also if it has another environment", () =>
    withScript(`env -i ${FOREVER} & echo $! >&2; exec cat >/dev/null`, async (setup) => {
      await isReady(setup);
      const pid = Number(setup.events.logs[0]?.split(" ").at(-1));
      await waitFor("its start", () => commandLineOf(pid) === FOREVER || undefined);
      await setup.link.close();
      assert.ok(!isAlive(pid));
    }));

  it("is not held up by a server that does not read what was sent", () =>
    withScript(FOREVER, async (setup) => {
      for (let n = 0; n < 4; n++) setup.link.send(utf8(notification(n, MEGABYTE)));
      await closeWithin(setup, 10_000);
    }));
});

/** Waits until so many processes of a stage have become this very command; returns their pids. */
function become(line: string, { pids }: Setup, size = 1): Promise<number[]> {
  return waitFor(`${size} of "${line}"`, () => {
    const found = pids().filter((pid) => commandLineOf(pid) === line);
    return found.length === size ? found : undefined;
  });
}

describe("vitals", () => {
  it("are of the child with all that descends from it, wherever that is, as long as the child runs", () =>
    withScript(`setsid ${FOREVER} & ${FOREVER} & exec cat >/dev/null`, async (setup) => {
      const [leader = 0] = await become("cat", setup);
      const others = await become(FOREVER, setup, 2);
      const sumResident = (): number =>
        [leader, ...others].map(residentOf).reduce((sum, bytes) => sum + bytes);
      // A program that has just been executed has few pages at first.
      await waitFor("the memory", () => sumResident() > 2 * MEGABYTE || undefined);
      const vitals = await setup.link.processStats();
      assert.deepEqual([vitals?.pid, vitals?.processes], [leader, 3]);
      const resident = sumResident();
      // Both are looked at while pages still come and go.
      const difference = Math.abs((vitals?.memory ?? 0) - resident);
      assert.ok(difference < MEGABYTE / 2, `${difference} bytes`);
      await setup.link.close();
      assert.equal(await setup.link.processStats(), undefined);
    }));

  it("are those of one child, not of another one's of the same hub", () =>
    withScript("exec cat", (setup) =>
      withScript(`${FOREVER} & exec cat`, async (other) => {
        const [[pid]] = [await become("cat", setup), await become(FOREVER, other)];
        const vitals = await setup.link.processStats();
        assert.deepEqual([vitals?.pid, vitals?.processes], [pid, 1]);
      }),
    ));

  it("are none before the child was started, and once it has ended by itself", async () => {
    assert.equal(await openStdioTransport(target("true")).processStats(), undefined);
    await withScript("exit 3", async ({ link, closed }) => {
      await closed();
      assert.equal(await link.processStats(), undefined);
    });
  });
});

describe("children that come and go", () => {
  it("leave no file open, no group remembered and nothing that keeps the process, after 60 of them", async () => {
    const { stdout, code } = await runFixture("open-and-close.ts");
    assert.equal(code, 0);
    const counts = JSON.parse(stdout) as Record<"before" | "after", Counts>;
    assert.ok(counts.after.files - counts.before.files < 5, stdout);
    assert.equal(counts.after.groups, 0);
  });
});

describe("a process that ends by itself", () => {
  it("takes all that it has started with it, though nobody has closed the links", async () => {
    const mark = randomUUID();
    const { code, stdout } = await runFixture("hub-processes.ts", { MARK: mark, EXIT: "7" });
    assert.equal(code, 7);
    assert.match(stdout, /^\d+\n$/);
    assert.ok(!isAlive(Number(stdout)), "what is only in the group");
    assert.deepEqual(pidsWithEnv(mark).map(commandLineOf), []);
  });
});

describe("a server's environment", () => {
  const hub = {
    PATH: "/usr/bin:/bin",
    HOME: "/h",
    LC_ALL: "C.UTF-8",
    XDG_DATA_HOME: "/d",
    https_proxy: "p",
    SSL_CERT_FILE: undefined,
    AWS_SECRET_ACCESS_KEY: "no",
    BUN_OPTIONS: "--preload=no",
    NODE_OPTIONS: "no",
    LCX: "no",
    TOOLMUX_OWNER: "no",
  };

  it("is the safe part of the hub's and the manifest's, and nothing else", () => {
    const run = async ({ running }: Setup): Promise<void> => {
      const variables = environmentOf(await running("cat"));
      const tag = variables.find((line) => line.startsWith("TOOLMUX_OWNER="));
      assert.match(tag ?? "", new RegExp(`^TOOLMUX_OWNER=${process.pid}/`));
      // The shell in between adds PWD and the like.
      const added = /^(TOOLMUX_OWNER|MARK|PWD|OLDPWD|SHLVL|_)=/;
      const own = variables.filter((line) => !added.test(line)).toSorted();
      const path = ["HOME=/other", "LC_ALL=C.UTF-8", "PATH=/usr/bin:/bin"];
      assert.deepEqual(own, [...path, "TOKEN=t", "XDG_DATA_HOME=/d", "https_proxy=p"]);
    };
    const env = { HOME: "/other", TOKEN: "t", BUN_BE_BUN: "1" };
    return withScript("exec cat", run, { hubEnv: hub, env });
  });

  it("names its owner, and the owners of a hub that is another one's server", () => {
    const outer = "1/a/b/c/d,2/a/b/c/d";
    const run = async (setup: Setup): Promise<void> => {
      const [pid = 0] = await become("cat", setup);
      const [own, ...others] = ownersOf(pid);
      assert.match(own ?? "", new RegExp(`^${process.pid}/`));
      assert.deepEqual(others, outer.split(","));
    };
    return withScript("exec cat", run, { hubEnv: { PATH: hub.PATH, TOOLMUX_OWNER: outer } });
  });

  it("never has BUN_*, whoever gives it", () => {
    const bun = { BUN_OPTIONS: "a", BUN_BE_BUN: "1" };
    assert.deepEqual(childEnvironment(bun, bun, bun), {});
  });

  it("may hold names that mean something to JavaScript", () => {
    const own = JSON.parse('{"__proto__": "a", "constructor": "b"}') as Record<string, string>;
    const entries = Object.entries(childEnvironment({}, own, {}));
    assert.deepEqual(entries, Object.entries(own));
  });
});

describe("a script without an interpreter line", () => {
  it("is run by sh with its arguments as they are, however its first 512 bytes end", async () => {
    const print = `printf '<%s>' "$@"\n`;
    const padding = "#".repeat(511 - print.length);
    for (const script of [print, `${print}${padding}é${"x".repeat(600)}\n`]) {
      const path = file("a script; exit 3", script, 0o755);
      const args = ["a b", "$HOME", "-c", "*"];
      const tag = await newOwnerTag();
      const child = await spawnChild({ file: path, args, env: {}, cwd: folder, tag });
      child.stdin.end();
      const chunks: Buffer[] = [];
      await new Promise<void>((resolve) =>
        child.stdout.read((chunk) => void chunks.push(chunk), resolve),
      );
      assert.equal(Buffer.concat(chunks).toString(), "<a b><$HOME><-c><*>");
      assert.deepEqual(await child.exited, { code: 0 });
      await child.terminate();
    }
  });
});

describe("a server that cannot be started", () => {
  const PATH = `relative:${folder}:/usr/bin:/bin`;

  it("because its command is nowhere is told so, and the PATH is apart from the message", async () => {
    const error = await failure({ command: "no-such-command", hubEnv: { PATH } });
    assert.equal(error.code, "commandNotFound");
    assert.match(error.message, /^"no-such-command" is not installed/);
    assert.ok(!error.message.includes(PATH));
  });

  it("because its file does not exist, or is not executable, is told so, with the file", async () => {
    const error = await failure({ command: "./no/server", cwd: folder });
    assert.equal(error.code, "commandNotFound");
    assert.match(error.message, /server "x".*: \/.*\/no\/server\.$/);
    const path = file("text", "no program");
    for (const name of [path, "text"]) {
      const { code, message } = await failure({ command: name, hubEnv: { PATH } });
      assert.equal(code, "notExecutable");
      assert.match(message, /: \/.*\/text\.$/);
    }
  });

  it("because its working directory does not exist is told so, and not that the command is missing", async () => {
    const error = await failure({ cwd: join(folder, "nowhere") });
    assert.equal(error.code, "spawnFailed");
    assert.match(error.message, /^The working directory of server "x" does not exist: .*nowhere$/);
    const other = await failure({ cwd: file("plain", "") });
    assert.match(other.message, /: .*plain$/);
  });

  it("because its interpreter is missing is told so", async () => {
    const path = file("orphan", "#!/no/such/interpreter\n", 0o755);
    const error = await failure({ command: path });
    assert.equal(error.code, "notExecutable");
    assert.match(error.message, /interpreter/);
    assert.match(error.hint ?? "", /first line/);
  });

  // Node and Deno hand such files to /bin/sh themselves, whatever they contain.
  const REPORTS_ENOEXEC = runtimeName === "bun";

  for (const [what, content] of [
    ["has a NUL byte", Buffer.from("echo\0")],
    ["is no UTF-8", Buffer.from([0x65, 0xff, 0x0a])],
    ["ends in the middle of a character", Buffer.from([0x65, 0xc3])],
    ["has a byte order mark before its #!", Buffer.from("\uFEFF#!/bin/sh\n")],
  ] as const) {
    const skip = REPORTS_ENOEXEC ? false : "the runtime does not report ENOEXEC";
    it(
      `because its file ${what} is told so, without the advice to make it executable`,
      { skip },
      async () => {
        const path = file("odd", content, 0o755);
        const error = await failure({ command: path });
        assert.equal(error.code, "notExecutable");
        assert.match(error.message, /ENOEXEC/);
        assert.ok(error.hint !== undefined && !error.hint.includes("chmod"));
      },
    );
  }

  it("shows no secret in the error", async () => {
    const error = await failure({ command: "/opt/hunter2/server", secrets: ["hunter2"] });
    assert.match(error.message, /\/opt\/\[redacted\]\/server/);
  });

  it("leaves nothing behind whenever its start is cancelled", async () => {
    const mark = randomUUID();
    const outcomes = new Set<string>();
    for (let turns = 0; turns < 24; turns++) {
      const link = openStdioTransport({ ...target("cat"), env: { MARK: mark } });
      const abort = new AbortController();
      const opening = link.open(new TransportRecorder(), abort.signal).then(
        () => "open",
        (error: unknown) => (error instanceof HubError ? error.code : String(error)),
      );
      for (let turn = 0; turn < turns; turn++)
        await new Promise((resolve) => setImmediate(resolve));
      abort.abort();
      const outcome = await opening;
      outcomes.add(outcome);
      if (outcome === "cancelled") assert.deepEqual(pidsWithEnv(mark), []);
      await link.close();
    }
    assert.deepEqual(pidsWithEnv(mark), []);
    assert.ok(outcomes.has("cancelled"));
  });
});

describe("findCommand", () => {
  const bin = mkdtempSync(join(folder, "bin-"));
  file(join(bin.slice(folder.length + 1), "tool"), "#!/bin/sh\n", 0o755);
  const search = { server: "x", command: "tool", cwd: bin };

  it("does not look into the working directory for a bare name", async () => {
    const morePath = (): Promise<undefined> => Promise.resolve(undefined);
    for (const path of ["", ":", relative(process.cwd(), bin), "/usr/bin:."]) {
      const found = resolveCommand({ ...search, path, extraPath: morePath });
      await assert.rejects(found, { code: "commandNotFound" });
    }
  });

  it("asks for a wider PATH only for a bare command that was not found, and returns both joined", async () => {
    let asked = 0;
    const morePath = (): Promise<string> => {
      asked++;
      return Promise.resolve(`/usr/bin:${bin}`);
    };
    const found = await resolveCommand({ ...search, path: "/usr/bin:/bin", extraPath: morePath });
    assert.deepEqual(found, { file: join(bin, "tool"), path: `/usr/bin:/bin:${bin}` });
    assert.equal(asked, 1);
    await resolveCommand({ ...search, command: "sh", path: "/usr/bin:/bin", extraPath: morePath });
    await resolveCommand({ ...search, command: "./tool", path: "/usr/bin", extraPath: morePath });
    assert.equal(asked, 1);
  });
});

describe("askShell", () => {
  it("takes the value alone from all that start files print", async () => {
    const script = `#!/bin/sh\necho 'Welcome! PATH=/wrong'\nPATH=/from/login:/bin\neval "$2"\necho bye\n`;
    const shell = file("shell", script, 0o755);
    assert.equal(await readShellPath(shell, { PATH: "/bin" }, "a/tag"), "/from/login:/bin");
  });

  it("does not wait for a shell that hangs after it has said the value", async () => {
    const mark = randomUUID();
    const shell = file("chatty", `#!/bin/sh\neval "$2"\n${FOREVER}\n`, 0o755);
    const env = { PATH: "/bin", MARK: mark };
    const took = await milliseconds(async () => {
      assert.equal(await readShellPath(shell, env, "a/tag", 10_000), "/bin");
    });
    assert.ok(took < 5000, `${took} ms`);
    await waitUntilExited(pidsWithEnv(mark), 10_000);
  });

  it("gives up on a shell that fails, says nothing or does not exist", async () => {
    const bad = file("bad", "#!/bin/sh\nexit 1\n", 0o755);
    for (const shell of [bad, join(folder, "missing")])
      assert.equal(await readShellPath(shell, {}, "a/tag"), undefined);
  });

  it("gives up on a shell that hangs, and ends it with all that its start files have started", async () => {
    const mark = randomUUID();
    const tag = await newOwnerTag();
    const env = { PATH: "/usr/bin:/bin", MARK: mark, TOOLMUX_OWNER: tag };
    const shell = file("slow", `#!/bin/sh\nsetsid ${FOREVER} &\n${FOREVER}\n`, 0o755);
    const asked = readShellPath(shell, env, tag, 300);
    const running = () => pidsWithEnv(mark).filter((pid) => commandLineOf(pid) === FOREVER);
    await waitFor("both", () => running().length === 2 || undefined);
    assert.equal(await asked, undefined);
    await waitUntilExited(pidsWithEnv(mark), 10_000);
  });
});
