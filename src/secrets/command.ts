import { Buffer } from "node:buffer";
import { HubError } from "../base/errors.ts";
import { decodeUtf8 } from "../base/read-file.ts";
import { type Env, expandHome } from "../base/paths.ts";
import { splitCommand } from "../manifest/interpolate.ts";
import {
  childEnvironment,
  type ChildProcess,
  type ExitStatus,
  spawnChild,
} from "../process/child-process.ts";
import { loginShellPath, resolveCommand } from "../process/path-lookup.ts";
import { DRAIN_GRACE, settlesWithin } from "../base/clock.ts";
import { HUBS_VARIABLE } from "../process/outer-hubs.ts";
import { newOwnerTag, ownerVariableOf } from "../process/orphans.ts";
import { Redactor } from "../transport/redact.ts";
import { streamEnd } from "../process/child-streams.ts";
import { OWNER_VARIABLE } from "../process/process-table.ts";

export interface CommandScope {
  /** Working directory; relative paths start here. */
  readonly cwd: string;
  /** The hub's environment; the command gets the safe part of it. */
  readonly env: Env;
  /** Time limit, in ms. */
  readonly limit?: number;
}

/** Default time limit, in ms. */
const LIMIT = 10_000;
/** Maximum output, in bytes. */
const MOST_OUTPUT = 64 * 1024;
/** How much of stderr an error quotes, in lines and characters. */
const TAIL = { lines: 3, length: 500 };

/**
 * Runs a command and returns its output without the last line end. The command has no shell and no stdin, and a process
 * group of its own, which is killed if it runs too long or prints too much.
 * @throws {HubError} valueMissing: why there is no value, with the end of stderr and nothing of stdout
 */
export async function runSecretCommand(text: string, place: CommandScope): Promise<string> {
  const [command] = splitCommand(text) ?? [""];
  try {
    return await run(text, place);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    // The arguments may be secret: quote only the program.
    throw new HubError("valueMissing", `the command ${JSON.stringify(command)} ${why}`);
  }
}

/** @throws {Error} whose message continues the sentence after the command */
async function run(text: string, { cwd, env, limit = LIMIT }: CommandScope): Promise<string> {
  const child = await start(text, cwd, env);
  const stderr = collect(child, "stderr", MOST_OUTPUT);
  const stdout = collect(child, "stdout", MOST_OUTPUT + 1);
  child.stdin.on("error", () => {}).end();
  const silent = streamEnd(child.stdout);
  // A background process may keep the pipe open.
  const ended = child.exited.then(() => settlesWithin(DRAIN_GRACE, silent));
  const isInTime = await settlesWithin(limit, Promise.race([ended, stdout.full]));
  const { exit } = child;
  const output = Buffer.concat(stdout.chunks);
  const fault = findFault(exit, output, isInTime, limit);
  for (const stream of [child.stdout, child.stderr]) stream.destroy();
  if (fault === undefined) {
    // Processes that it has left running, such as the agent of a password manager, go on.
    child.detach();
    return (decodeUtf8(output) ?? "").replace(/\r?\n$/, "");
  }
  child.killNow();
  await child.terminate();
  throw new Error(fault + quote(Buffer.concat(stderr.chunks), output));
}

async function start(text: string, cwd: string, env: Env): Promise<ChildProcess> {
  const [word, ...args] = splitCommand(text) ?? [""];
  const tag = await newOwnerTag();
  const own = childEnvironment(
    env,
    {},
    {
      [OWNER_VARIABLE]: ownerVariableOf(tag, env[OWNER_VARIABLE]),
      [HUBS_VARIABLE]: env[HUBS_VARIABLE],
    },
  );
  const command = expandHome(word, env);
  const morePath = () => loginShellPath(env, tag);
  try {
    const found = await resolveCommand({
      server: "",
      command,
      cwd,
      path: own["PATH"],
      extraPath: morePath,
    });
    if (own["PATH"] !== undefined) own["PATH"] = found.path;
    return await spawnChild({ file: found.file, args, env: own, cwd, tag });
  } catch (error) {
    const code =
      error instanceof HubError ? error.code : String((error as { code?: unknown }).code);
    if (code === "commandNotFound") throw new Error("was not found", { cause: error });
    if (code === "notExecutable") throw new Error("may not be executed", { cause: error });
    throw new Error(`could not be started (${code})`, { cause: error });
  }
}

/** Collects the first `most` bytes of an output; the rest is read and discarded. */
function collect(child: ChildProcess, name: "stdout" | "stderr", most: number) {
  const chunks: Buffer[] = [];
  let room = most;
  const full = new Promise<void>((resolve) => {
    child[name].on("error", () => {});
    child[name].on("data", (chunk: Buffer) => {
      if (room > 0) chunks.push(chunk.subarray(0, room));
      room -= chunk.length;
      if (room <= 0) resolve();
    });
  });
  return { chunks, full };
}

function findFault(
  exit: ExitStatus | undefined,
  output: Buffer,
  isInTime: boolean,
  limit: number,
): string | undefined {
  if (output.length > MOST_OUTPUT) return `printed more than ${MOST_OUTPUT} bytes`;
  if (!isInTime || exit === undefined) return `did not end within ${limit / 1000} s`;
  if ("signal" in exit) return `was killed by signal ${exit.signal}`;
  if (exit.code !== 0) return `exited with code ${exit.code}`;
  const text = decodeUtf8(output);
  if (text === undefined) return "printed what is not UTF-8 text";
  return text.trim() === "" ? "printed nothing" : undefined;
}

/** The end of stderr, without the value if it is repeated there. */
function quote(stderr: Buffer, output: Buffer): string {
  const hidden = new Redactor([output.toString("utf8").trim()]);
  const lines = hidden.apply(stderr.toString("utf8")).trim().split(/\r?\n/);
  const text = lines.slice(-TAIL.lines).join(" / ").slice(-TAIL.length);
  return text === "" ? "" : `: ${text}`;
}
