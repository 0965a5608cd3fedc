import process from "node:process";
import { Greetings } from "./cli/greetings.ts";
import { Notices } from "./cli/notices.ts";
import { formatLine } from "./cli/report.ts";
import { HubError } from "./errors.ts";
import { Welcome } from "./frontend/welcome.ts";
import { runtimeName } from "./runtime.ts";
import { VERSION } from "./version.ts";

/** Exit codes by signal: 128 and its number, as shells have it. */
const SIGNALS = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;

const stop = new AbortController();
/** What there is to do when a terminal or its owner hangs up, other than to end. */
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

/** Those who can tell whether an error that nobody caught is a plugin's. */
const claims = new Set<(error: unknown) => boolean>();
process.on("uncaughtException", crash);
process.on("unhandledRejection", crash);

/** Ends this process at once, because of a mistake in it; one in a plugin costs that plugin only. */
function crash(error: unknown): void {
  if ([...claims].some((claim) => claim(error))) return;
  // Last, after what this process has started was ended: a terminal may keep whoever writes to it waiting.
  process.once("exit", () => tell(error));
  process.exit(1);
}

/** Nobody may read stderr; then it goes unsaid. */
function tell(error: unknown): void {
  const { inspect } = process.getBuiltinModule("node:util");
  const lines = inspect(error).split("\n").map(formatLine);
  new Notices(String).print(lines.join("\n"));
}

const argv = process.argv.slice(2);
const surroundings = { env: process.env, cwd: process.cwd(), platform: process.platform };
const greetings = new Greetings(argv, surroundings);
const greeting = greetings.recall();
const welcome = greeting && new Welcome({ name: greeting.name, version: VERSION }, greeting);
// A client that has asked already is answered before all the rest is loaded.
await welcome?.listen();
const { runCli } = await import("./cli/cli.ts");
const code = await runCli(argv, {
  ...surroundings,
  greetings,
  welcome,
  signal: stop.signal,
  claims,
  hangups,
});

// Node alone writes to a pipe later: there it ends by itself, unless something is left that would keep it.
process.exitCode = told ?? code;
if (runtimeName === "node") setTimeout(() => process.exit(), 500).unref();
else process.exit();
