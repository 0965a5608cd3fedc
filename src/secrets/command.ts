import { formatDuration } from "../base/format.ts";
import { Buffer } from "node:buffer";
import { HubError } from "../base/errors.ts";
import { decodeUtf8 } from "../base/read-file.ts";
import { type Env, expandHome } from "../base/paths.ts";
import { splitCommand } from "../manifest/interpolate.ts";
import { childEnvironment, type ChildProcess, spawnChild } from "../process/child-process.ts";
import { extraPathOf, resolveCommand } from "../process/path-lookup.ts";
import { PIPE_DRAIN_GRACE } from "../base/grace-periods.ts";
import { settlesWithin } from "../base/clock.ts";
import { HUBS_VARIABLE } from "../process/outer-hubs.ts";
import { newOwnerTag, ownerVariableOf } from "../process/orphans.ts";
import { Redactor } from "../transport/redact.ts";
import { OWNER_VARIABLE } from "../process/process-table.ts";
import type { ExitStatus } from "../process/started-process.ts";

export interface CommandScope {
  /** Working directory; relative paths start here. */
  readonly cwd: string;
  /** The hub's environment variables, of which the command gets only the safe ones. */
  readonly env: Env;
  /** The folders in which the program is looked up after those of PATH, joined as in PATH; undefined: none. */
  readonly morePath?: string | undefined;
  /** Time limit, in ms. */
  readonly timeout?: number;
}

/** Default time limit, in ms. */
const COMMAND_TIMEOUT = 10_000;
/** Maximum output, in bytes. */
const MAX_OUTPUT = 64 * 1024;
/** The maximum excerpt of stderr in an error, in lines and characters. */
const STDERR_EXCERPT = { lines: 3, length: 500 };

/**
 * Runs a command and returns its output without the last line end. The command runs without a shell, without stdin
 * and in its own process group, which is killed if the command runs too long or prints too much.
 * @throws {HubError} valueMissing; the message says why there is no value, and quotes the end of stderr but nothing
 * of stdout
 */
export async function runSecretCommand(text: string, scope: CommandScope): Promise<string> {
  const [command] = splitCommand(text) ?? [""];
  try {
    return await runChild(text, scope);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    // The arguments may be secret: quote only the program.
    throw new HubError("valueMissing", `the command ${JSON.stringify(command)} ${reason}`);
  }
}

/** Runs the command. @throws {Error} The message is the predicate of a sentence whose subject is the command. */
async function runChild(
  text: string,
  { cwd, env, morePath, timeout = COMMAND_TIMEOUT }: CommandScope,
): Promise<string> {
  const child = await startCommand(text, { cwd, env, morePath });
  const stderr = collect(child, "stderr", MAX_OUTPUT);
  const stdout = collect(child, "stdout", MAX_OUTPUT + 1);
  child.stdin.end();
  // A background process of the command may keep the pipe open, so the wait for the end of stdout is limited.
  const finished = child.exited.then(() => settlesWithin(PIPE_DRAIN_GRACE, child.stdout.ended));
  const isInTime = await settlesWithin(timeout, Promise.race([finished, stdout.full]));
  const { exit } = child;
  const output = Buffer.concat(stdout.chunks);
  const problem = findProblem(exit, output, isInTime, timeout);
  child.closePipes();
  if (problem === undefined) {
    // Do not kill processes that the command left running, such as the agent of a password manager.
    child.detach();
    return (decodeUtf8(output) ?? "").replace(/\r?\n$/, "");
  }
  child.killNow();
  await child.terminate();
  throw new Error(problem + quoteStderr(Buffer.concat(stderr.chunks), output));
}

async function startCommand(
  text: string,
  { cwd, env, morePath }: CommandScope,
): Promise<ChildProcess> {
  const [program, ...args] = splitCommand(text) ?? [""];
  const tag = await newOwnerTag();
  const childEnv = childEnvironment(
    env,
    {},
    {
      [OWNER_VARIABLE]: ownerVariableOf(tag, env[OWNER_VARIABLE]),
      [HUBS_VARIABLE]: env[HUBS_VARIABLE],
    },
  );
  const command = expandHome(program, env);
  const extraPath = () => extraPathOf(env, tag, morePath);
  try {
    const resolved = await resolveCommand({
      server: "",
      command,
      cwd,
      path: childEnv["PATH"],
      extraPath,
    });
    if (childEnv["PATH"] !== undefined) childEnv["PATH"] = resolved.path;
    return await spawnChild({ file: resolved.file, args, env: childEnv, cwd, tag });
  } catch (error) {
    const code =
      error instanceof HubError ? error.code : String((error as { code?: unknown }).code);
    if (code === "commandNotFound") throw new Error("was not found", { cause: error });
    if (code === "notExecutable") throw new Error("is not executable", { cause: error });
    throw new Error(`could not be started (${code})`, { cause: error });
  }
}

/** Collects the first `maxBytes` bytes of an output; the rest is read and discarded. */
function collect(child: ChildProcess, name: "stdout" | "stderr", maxBytes: number) {
  const chunks: Buffer[] = [];
  let remaining = maxBytes;
  const full = new Promise<void>((resolve) => {
    child[name].read(
      (chunk) => {
        if (remaining > 0) chunks.push(chunk.subarray(0, remaining));
        remaining -= chunk.length;
        if (remaining <= 0) resolve();
      },
      () => {},
    );
  });
  return { chunks, full };
}

function findProblem(
  exit: ExitStatus | undefined,
  output: Buffer,
  isInTime: boolean,
  timeout: number,
): string | undefined {
  if (output.length > MAX_OUTPUT) return `printed more than ${MAX_OUTPUT} bytes`;
  if (!isInTime || exit === undefined) return `did not end within ${formatDuration(timeout)}`;
  if ("signal" in exit) return `was killed by signal ${exit.signal}`;
  if (exit.code !== 0) return `exited with code ${exit.code}`;
  const text = decodeUtf8(output);
  if (text === undefined) return "printed something other than UTF-8 text";
  return text.trim() === "" ? "printed nothing" : undefined;
}

/** The end of stderr, with the secret value redacted in case the command printed it there, too. */
function quoteStderr(stderr: Buffer, output: Buffer): string {
  const redactor = new Redactor([output.toString("utf8").trim()]);
  const lines = redactor.apply(stderr.toString("utf8")).trim().split(/\r?\n/);
  const text = lines.slice(-STDERR_EXCERPT.lines).join(" / ").slice(-STDERR_EXCERPT.length);
  return text === "" ? "" : `: ${text}`;
}
