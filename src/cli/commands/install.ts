import { usageError } from "../../base/errors.ts";
import type { Exposure } from "../../manifest/exposures.ts";
import { TOOLMUX_KEY } from "../../manifest/files/own-entry.ts";
import {
  findInstallTarget,
  type InstallRequest,
  type InstallTarget,
  makeSnippet,
  prepareInstallation,
  prepareRemoval,
} from "../../operations/install.ts";
import type { InstallationDocument } from "../../operations/documents.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import type { TerminalStyle } from "../../terminal/terminal.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { describeImport } from "./import.ts";

interface InstallOptions {
  readonly project: boolean;
  readonly http: string | undefined;
  readonly "http-token-env": string | undefined;
  readonly approval: "auto" | "always" | undefined;
  readonly mode: string | undefined;
  readonly expose: Exposure | undefined;
  readonly replace: boolean;
  readonly secrets: boolean;
  readonly undo: boolean;
  readonly print: boolean;
  readonly "dry-run": boolean;
  readonly json: boolean;
}

/** `toolmux install`: writes the entry of toolmux into a client's file, or removes it (`--undo`). */
export async function install(
  invocation: Invocation<InstallOptions>,
  context: CommandContext,
): Promise<number> {
  const { args, options } = invocation;
  const [name] = args;
  if (name === undefined) throw usageError("Name a client: toolmux install CLIENT");
  const target = await findInstallTarget(name, options.project, context);
  const { client } = target;
  const request = { ...options, httpTokenEnv: options["http-token-env"] };
  if (options.print) return printEntry(target, request, invocation, context);
  const print = (text: string): void => {
    if (!options.json) context.terminal.print(text);
  };
  const document = options.undo
    ? await undo(target, options["dry-run"], context, print)
    : await write(target, request, invocation, context, print);
  if (document.written && document.action === "install") {
    print(`Next, in ${client.title}: ${client.restartHint}`);
    print(`To undo this: toolmux install ${client.name} --undo`);
  } else if (document.written) {
    print(`Next: restart ${client.title}. toolmux is no longer one of its servers.`);
  }
  if (options.json) context.terminal.printJson(document);
  return 0;
}

/** Prints the entry of toolmux, for a person to copy it into the client's file. */
async function printEntry(
  target: InstallTarget,
  request: InstallRequest,
  invocation: Invocation<InstallOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const { undo: isUndo, replace, json } = invocation.options;
  if (isUndo || replace) {
    throw usageError("--print only shows the entry: leave out --undo and --replace.");
  }
  const document = await makeSnippet(target, request, invocation, context);
  if (json) {
    terminal.printJson(document);
    return 0;
  }
  const { file, text, next } = document;
  const { client, table } = target;
  terminal.note(`For ${file}; if it has ${table.keys.join(".")} already, add only toolmux to it:`);
  terminal.print(text);
  terminal.note(`Next, in ${client.title}: ${next}`);
  return 0;
}

async function write(
  target: InstallTarget,
  request: InstallRequest,
  invocation: Invocation<InstallOptions>,
  context: CommandContext,
  print: (text: string) => void,
): Promise<InstallationDocument> {
  const { file } = target.table;
  const { change, planned, apply } = await prepareInstallation(
    target,
    request,
    invocation,
    context,
  );
  if (change === undefined) {
    print(`${file} already has this entry of toolmux: nothing was changed`);
    return planned;
  }
  const { before, after, removed, sources } = change;
  const style = context.terminal.stdout;
  if (sources) print(describeImport(sources, request.secrets, style));
  print(formatDifference(file, before, after, removed, style));
  if (invocation.options["dry-run"]) return planned;
  const document = await apply();
  print(`written: ${file}`);
  if (document.backup !== undefined) print(`backup of the original file: ${document.backup}`);
  return document;
}

async function undo(
  target: InstallTarget,
  isDryRun: boolean,
  { terminal }: CommandContext,
  print: (text: string) => void,
): Promise<InstallationDocument> {
  const { file } = target.table;
  const { undo: prepared, planned, apply } = await prepareRemoval(target);
  const document = isDryRun ? planned : await apply();
  switch (prepared.kind) {
    case "absent":
      print(`${file} has no entry of toolmux: nothing was changed`);
      break;
    case "restore":
      print(`${isDryRun ? "would restore" : "restored"} ${file} from ${prepared.backup}`);
      break;
    case "remove":
      print(`${isDryRun ? "would delete" : "deleted"} ${file}: it did not exist before`);
      break;
    case "edit":
      print(`${file} was changed after toolmux wrote it, so only the entry of toolmux is removed`);
      print(terminal.stdout.colors.red(`- "${TOOLMUX_KEY}"`));
      if (prepared.former !== undefined && prepared.former.servers.length > 0) {
        const { backup, servers } = prepared.former;
        const names = servers.map((name) => `"${name}"`).join(", ");
        print(`not restored: ${names}. To restore them, copy them from ${backup}`);
      }
  }
  return document;
}

/**
 * Describes the change of the file: added lines in full, removed servers by name only, because their entries may
 * contain secrets.
 */
function formatDifference(
  file: string,
  before: string,
  after: string,
  removed: readonly string[],
  { colors }: TerminalStyle,
): string {
  const maxCommon = Math.min(before.length, after.length);
  let start = 0;
  while (start < maxCommon && before[start] === after[start]) start++;
  let end = 0;
  while (end < maxCommon - start && before.at(-1 - end) === after.at(-1 - end)) end++;
  // The unchanged beginning of the text may end with the indentation of the first changed line, which is shown, too.
  const lineStart = after.lastIndexOf("\n", start - 1) + 1;
  if (after.slice(lineStart, start).trim() === "") start = lineStart;
  const line = before.slice(0, start).split("\n").length;
  // If servers are removed, the changed text may contain parts of their entries, so only toolmux's key is shown.
  const added = removed.length > 0 ? `"${TOOLMUX_KEY}"` : after.slice(start, after.length - end);
  // Leaves out blank lines, and lines that start with a comma. The comma only separates toolmux's entry from the entry
  // before it.
  const lines = added.split(/\r?\n/).filter((text) => !/^\s*(?:,.*)?$/.test(text));
  return [
    colors.bold(sanitizeLine(`${file}:${line}`)),
    ...removed.map((name) => colors.red(`- "${sanitizeLine(name)}"`)),
    ...lines.map((text) => colors.green(`+ ${sanitizeLine(text.replaceAll("\t", "  "))}`)),
  ].join("\n");
}
