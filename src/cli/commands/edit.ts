import { HubError, usageError } from "../../base/errors.ts";
import { count } from "../../base/format.ts";
import { checkManifest } from "../../operations/check.ts";
import { editManifestByHand } from "../../operations/edit.ts";
import { manifestToEdit } from "../../operations/manifest-file.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { hasTerminal, withPrompt } from "../prompt.ts";
import { reloadHubs } from "../running-hub.ts";
import { printProblemWithFrame } from "./check.ts";

interface EditOptions {
  readonly file: string | undefined;
}

/**
 * `toolmux edit`: opens the manifest in the user's editor and checks it when the editor ends. In a terminal it offers to
 * edit again while there are problems.
 * @returns the exit code: 2 if the manifest has a problem
 */
export async function edit(
  invocation: Invocation<EditOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const { file: named } = invocation.options;
  const file = await manifestToEdit(named ?? invocation.config.at(-1), context);
  const choice = named === undefined ? invocation : { ...invocation, config: [file] };
  let hasChanged = false;
  for (;;) {
    const isChanged = await editManifestByHand(file, runInTerminal(context), context);
    hasChanged ||= isChanged;
    if (!hasChanged) {
      terminal.printWrapped(sanitizeLine(`${file} is unchanged`));
      return 0;
    }
    const { problems } = await checkManifest(choice, context);
    if (problems.length === 0) {
      terminal.printWrapped(sanitizeLine(`no problems; saved ${file}`));
      for (const line of await reloadHubs(choice, context))
        terminal.printWrapped(sanitizeLine(line));
      return 0;
    }
    for (const problem of problems) await printProblemWithFrame(problem, context);
    const what = `${count(problems.length, "problem")} in the saved manifest`;
    const answer = hasTerminal()
      ? await withPrompt(context.signal, (ask) => ask(`${what}. Edit again? [Y/n]`))
      : undefined;
    if (answer === undefined || /^no?$/i.test(answer)) {
      terminal.note(`${what}. Running hubs keep what they have; to look again: toolmux edit`);
      return 2;
    }
  }
}

/** Runs a program, without a shell, on the terminal of this process. */
function runInTerminal({ env, cwd, signal }: CommandContext) {
  return async (command: string, args: readonly string[]): Promise<number> => {
    const { spawn } = await import("node:child_process");
    signal.throwIfAborted();
    return new Promise((resolve, reject) => {
      const fail = (error: unknown): void => {
        const reason = error instanceof Error ? error.message : String(error);
        const text = `The editor ${command} cannot be started: ${reason}. Set EDITOR or VISUAL.`;
        reject(usageError(text));
      };
      try {
        const child = spawn(command, args, { env: { ...env }, cwd, stdio: "inherit" });
        child.once("error", fail);
        child.once("exit", (code, end) => {
          if (end !== null) reject(new HubError("cancelled", `The editor was ended by ${end}.`));
          else resolve(code ?? 0);
        });
      } catch (error) {
        fail(error);
      }
    });
  };
}
