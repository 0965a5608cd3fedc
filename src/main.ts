import process from "node:process";
import { Greetings } from "./cli/initialize-cache.ts";
import { StderrWriter } from "./terminal/stderr.ts";
import { formatLine } from "./terminal/report.ts";
import { HubError } from "./base/errors.ts";
import { EarlyInitialize } from "./frontend/early-initialize.ts";
import { runtimeName } from "./base/runtime.ts";
import { VERSION } from "./base/version.ts";

/** Exit codes by signal: 128 plus the signal number, as in shells. */
const SIGNALS = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;

const stop = new AbortController();
/** Handlers for SIGHUP; without any, SIGHUP ends the process. */
const hangups = new Set<() => void>();
let told: number | undefined;
for (const [signal, code] of Object.entries(SIGNALS)) {
  process.on(signal, () => {
    if (signal === "SIGHUP" && hangups.size > 0) {
      for (const hangUp of hangups) hangUp();
      return;
    }
    if (told !== undefined) process.exit(code);
    told = code;
    stop.abort(new HubError("cancelled", "Interrupted."));
  });
}

/** Each tells whether an uncaught error was caused by a plugin. */
const claims = new Set<(error: unknown) => boolean>();
process.on("uncaughtException", crash);
process.on("unhandledRejection", crash);

/** Exits at once because of an uncaught error. An error of a plugin only disables that plugin. */
function crash(error: unknown): void {
  if ([...claims].some((isPluginError) => isPluginError(error))) return;
  // Registered last, so that child processes are killed first: a write to a terminal may block.
  process.once("exit", () => tell(error));
  process.exit(1);
}

/** If nobody reads stderr, the error is lost. */
function tell(error: unknown): void {
  const { inspect } = process.getBuiltinModule("node:util");
  const lines = inspect(error).split("\n").map(formatLine);
  new StderrWriter(String).print(lines.join("\n"));
}

const argv = process.argv.slice(2);
const surroundings = { env: process.env, cwd: process.cwd(), platform: process.platform };
const greetings = new Greetings(argv, surroundings);
const greeting = greetings.recall();
const welcome =
  greeting && new EarlyInitialize({ name: greeting.name, version: VERSION }, greeting);
// A client that has already sent `initialize` is answered before the rest is loaded.
await welcome?.readAvailable();
const { runCli } = await import("./cli/commands.ts");
const code = await runCli(argv, {
  ...surroundings,
  greetings,
  welcome,
  signal: stop.signal,
  claims,
  hangups,
});

// Node writes to pipes asynchronously, so it exits by itself; the timer ends it if something keeps it alive.
process.exitCode = told ?? code;
if (runtimeName === "node") setTimeout(() => process.exit(), 500).unref();
else process.exit();
