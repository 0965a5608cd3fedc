import { resolve } from "node:path";
import type { TrialDocument } from "../operations/documents.ts";
import type { OperationContext } from "../operations/context.ts";
import type { CommandAnswer, HubSetup } from "../control/setup-api.ts";
import type { RunnableServer } from "../manifest/manifest.ts";
import { type StatusLine, Terminal } from "../terminal/terminal.ts";
import type { CommandContext, Invocation, RunCommandLine } from "./command.ts";
import type { CommandLog } from "../operations/load-manifest.ts";

/**
 * Maximum length of the error message of a command whose output is not JSON, in UTF-16 code units. The message is the
 * beginning of the output.
 */
const MAX_TEXT = 1000;

/** A terminal that collects what a command prints, because the hub's own stdout is for protocol messages. */
class CapturedTerminal extends Terminal {
  text = "";
  readonly #onNote: (text: string) => void;

  constructor(env: CommandContext["env"], onNote: (text: string) => void) {
    super(env);
    this.#onNote = onNote;
  }

  override get hasPrinted(): boolean {
    return this.text !== "";
  }

  override print(text = ""): void {
    this.text += `${text}\n`;
  }

  override printStderr(text: string): void {
    this.#onNote(text);
  }

  override printStderrWrapped(text: string): void {
    this.#onNote(text);
  }

  override note(text: string): void {
    this.#onNote(text);
  }

  override openStatusLine(): StatusLine | undefined {
    return undefined;
  }
}

export interface HubSetupOptions {
  readonly invocation: Invocation;
  readonly context: CommandContext;
  readonly runCli: RunCommandLine;
  readonly log: CommandLog;
  /** Reads a server's entry as if it were in the manifest. @throws {HubError} manifestInvalid */
  readServer(name: string, entry: Readonly<Record<string, unknown>>): Promise<RunnableServer>;
}

/**
 * Makes the functions by which the control API of a hub changes secrets, servers, logins and clients. Much of that is
 * done by commands of toolmux, which run in the process of the hub.
 */
export function makeHubSetup(options: HubSetupOptions): HubSetup {
  const { invocation, context, runCli, log } = options;
  /** The context of an operation that also ends with the request for it. */
  const within = (signal: AbortSignal): OperationContext => ({
    ...context,
    signal: AbortSignal.any([context.signal, signal]),
  });
  return {
    async runCommand(words, signal, onNote = () => {}): Promise<CommandAnswer> {
      const terminal = new CapturedTerminal(context.env, onNote);
      const configs = invocation.config.flatMap((file) => ["--config", resolve(context.cwd, file)]);
      const [command = "", ...rest] = words;
      const argv = [command, "--json", ...configs, ...rest];
      const exitCode = await runCli(argv, {
        ...context,
        terminal,
        signal: AbortSignal.any([context.signal, signal]),
      });
      return { exitCode, document: documentOf(terminal.text) };
    },
    async check() {
      const { checkManifest } = await import("../operations/check.ts");
      return (await checkManifest(invocation, context)).document;
    },
    async listSecrets() {
      const { listSecrets } = await import("../operations/secrets.ts");
      return (await listSecrets(invocation, context)).document;
    },
    async setSecret(name, value) {
      const { openSecretToSet } = await import("../operations/secrets.ts");
      await (await openSecretToSet(name, context)).set(value);
    },
    async removeSecret(name) {
      const { removeStoredSecret } = await import("../operations/secrets.ts");
      return (await removeStoredSecret(name, context)).isRemoved;
    },
    async search(words, limit, signal) {
      const [{ searchServers }, { logRegistryFailures }] = await Promise.all([
        import("../operations/search.ts"),
        import("../operations/registries.ts"),
      ]);
      const request = { words, from: [], limit };
      const { document, failures } = await searchServers(request, invocation, within(signal));
      logRegistryFailures(failures, log);
      return document;
    },
    async tryServer(name, entry, signal): Promise<TrialDocument> {
      const { tryServer } = await import("./commands/add.ts");
      const terminal = new CapturedTerminal(context.env, () => {});
      const own = { ...context, terminal, signal: AbortSignal.any([context.signal, signal]) };
      const result = await tryServer(await options.readServer(name, entry), own, log);
      switch (result.kind) {
        case "connected": {
          const { name: peer, version, tools } = result;
          return {
            state: "connected",
            ...(peer !== undefined && { name: peer }),
            ...(version !== undefined && { version }),
            tools,
          };
        }
        case "unauthorized":
          return { state: "unauthorized" };
        case "failed": {
          const { code, message } = result.cause;
          return { state: "failed", error: { code, message }, remedies: result.hints };
        }
      }
    },
    async clientApps() {
      const { listClientApps } = await import("../operations/install.ts");
      return listClientApps(context);
    },
    async makeSnippet(client, http) {
      const { findInstallTarget, makeSnippet } = await import("../operations/install.ts");
      const target = await findInstallTarget(client, false, context);
      return makeSnippet(target, { http }, invocation, context);
    },
    async install(client, { replace = false, http, dryRun = false }, signal) {
      const { findInstallTarget, prepareInstallation } = await import("../operations/install.ts");
      const own = within(signal);
      const target = await findInstallTarget(client, false, own);
      const request = { project: false, secrets: false, replace, http };
      const prepared = await prepareInstallation(target, request, invocation, own);
      return dryRun ? prepared.planned : prepared.apply();
    },
    async undoInstall(client) {
      const { findInstallTarget, prepareRemoval } = await import("../operations/install.ts");
      return (await prepareRemoval(await findInstallTarget(client, false, context))).apply();
    },
  };
}

function documentOf(text: string): CommandAnswer["document"] {
  try {
    return JSON.parse(text) as CommandAnswer["document"];
  } catch {
    const message = text.trim().slice(0, MAX_TEXT) || "The command printed nothing.";
    return { error: { code: "internal", message } };
  }
}
