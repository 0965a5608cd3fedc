import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { skipWithout } from "./requirements.ts";
import { waitFor } from "./wait.ts";

const PROGRAM = fileURLToPath(new URL("../../dist/nats/nats-server", import.meta.url));

/** The `skip` option of tests that need a NATS server. */
export const SKIP_WITHOUT_NATS = skipWithout({
  isMet: existsSync(PROGRAM),
  tests: "fleets over a NATS server",
  remedy:
    "there is no dist/nats/nats-server (install Go or nats-server; then node scripts/nats.mjs)",
});

/** A NATS server of a test. */
export interface NatsServer {
  readonly port: number;
  readonly url: string;
  /** Stops it as a signal does, without a word to its clients. */
  freeze(): void;
  thaw(): void;
  /** Ends it, and starts it again on the same port. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Starts a NATS server on a port of its own.
 * @param folder for its configuration and the file that tells its port
 * @param config more of its configuration, such as users
 */
export async function startNats(folder: string, config = ""): Promise<NatsServer> {
  mkdirSync(folder, { recursive: true });
  const file = join(folder, "nats.conf");
  let port = -1;
  const run = async (): Promise<ChildProcess> => {
    writeFileSync(
      file,
      `host: "127.0.0.1"\nport: ${port}\nports_file_dir: ${JSON.stringify(folder)}\n${config}\n`,
    );
    const child = spawn(PROGRAM, ["-c", file], { stdio: ["ignore", "ignore", "pipe"] });
    let log = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => (log += text));
    const ports = await waitFor(
      "the port of nats-server",
      () => {
        if (child.exitCode !== null) throw new Error(`nats-server has ended: ${log}`);
        const name = readdirSync(folder).find((one) => one.endsWith(`_${child.pid}.ports`));
        if (name === undefined || !log.includes("Server is ready")) return undefined;
        const text = readFileSync(join(folder, name), "utf8");
        return text === "" ? undefined : (JSON.parse(text) as { readonly nats: readonly string[] });
      },
      15_000,
    );
    port = Number(new URL(ports.nats[0] ?? "").port);
    return child;
  };
  let child = await run();
  // In Deno, `ChildProcess.kill` sends one signal only.
  const send = (signal: NodeJS.Signals): boolean =>
    child.pid !== undefined && process.kill(child.pid, signal);
  const end = async (): Promise<void> => {
    const exited = new Promise((resolve) => child.once("exit", resolve));
    if (child.exitCode !== null || child.signalCode !== null) return;
    send("SIGKILL");
    await exited;
  };
  return {
    get port() {
      return port;
    },
    get url() {
      return `nats://127.0.0.1:${port}`;
    },
    freeze: () => void send("SIGSTOP"),
    thaw: () => void send("SIGCONT"),
    async restart() {
      await end();
      child = await run();
    },
    stop: end,
  };
}
