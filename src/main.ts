import process from "node:process";
import { runCli } from "./cli/cli.ts";
import { HubError } from "./errors.ts";
import { runtimeName } from "./runtime.ts";

/** Exit codes by signal: 128 and its number, as shells have it. */
const SIGNALS = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;

/** How long after a second signal what has left its server's process group is still looked for, in ms. */
const LAST_GRACE = 900;

const stop = new AbortController();
let told: number | undefined;

for (const [signal, code] of Object.entries(SIGNALS)) {
  process.on(signal, () => {
    if (told !== undefined) void quit(code, LAST_GRACE);
    told ??= code;
    stop.abort(new HubError("cancelled", "Interrupted."));
  });
}

process.on("uncaughtException", crash);
process.on("unhandledRejection", crash);

function crash(error: unknown): void {
  console.error("toolmux: error", error);
  void quit(1, 0);
}

/** Kills every server at once, and ends after that many ms, unless all is over before. */
async function quit(code: number, grace: number): Promise<void> {
  // Loaded only now: commands that start no server, and the first answer of `serve`, do without it.
  const { killAllNow } = await import("./wire/child.ts");
  killAllNow();
  if (grace === 0) process.exit(code);
  setTimeout(() => process.exit(code), grace).unref();
}

const code = await runCli(process.argv.slice(2), {
  env: process.env,
  cwd: process.cwd(),
  platform: process.platform,
  signal: stop.signal,
});

// Node alone writes to a pipe later: there it ends by itself, unless something is left that would keep it.
process.exitCode = told ?? code;
if (runtimeName === "node") setTimeout(() => process.exit(), 500).unref();
else process.exit();
