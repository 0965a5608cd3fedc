import { errorDocument, toHubError, usageError } from "../../base/errors.ts";
import { count } from "../../base/format.ts";
import type { Exposure } from "../../manifest/exposures.ts";
import { TOOLMUX_KEY } from "../../manifest/files/own-entry.ts";
import {
  countUndecidedClients,
  findInstallTarget,
  type InstallRequest,
  type InstallTarget,
  listClientApps,
  makeSnippet,
  prepareInstallation,
  prepareRemoval,
} from "../../operations/install-in-client.ts";
import type { InstallationDocument } from "../../operations/documents.ts";
import { offerToClients } from "../../operations/share.ts";
import { readSharing } from "../../control/sharing.ts";
import { describeError, sanitizeLine } from "../../terminal/log.ts";
import type { TerminalStyle } from "../../terminal/terminal.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { servingHubs } from "../running-hub.ts";
import { describeImport } from "./import.ts";

interface InstallOptions {
  readonly all: boolean;
  readonly project: boolean;
  readonly http: string | undefined;
  readonly "http-token-env": string | undefined;
  readonly approval: "auto" | "always" | undefined;
  readonly mode: string | undefined;
  readonly expose: Exposure | undefined;
  readonly shared: boolean;
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
  if (name !== undefined && options.all) throw usageError("Name a client, or use --all: not both.");
  if (name !== undefined) return installIn(name, invocation, context);
  if (options.all) return installInAll(invocation, context);
  return listClients(invocation, context);
}

/** After an installation: the offer to share one hub, if several clients start toolmux. */
async function printSharingOffer(
  invocation: Invocation<InstallOptions>,
  context: CommandContext,
): Promise<void> {
  const { undo: isUndo, "dry-run": isDryRun, json } = invocation.options;
  if (isUndo || isDryRun || json) return;
  const clients = await countUndecidedClients(context);
  if (clients < 2) return;
  const hubs = await servingHubs(invocation, context);
  const sharing = await readSharing(hubs, invocation, context);
  const text = offerToClients(clients, sharing, invocation.config);
  if (text !== undefined) context.terminal.printWrapped(sanitizeLine(text));
}

/** Lists the clients of this machine. */
async function listClients(
  { options: { json } }: Invocation<InstallOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const all = await listClientApps(context);
  const present = all.filter((client) => client.exists);
  if (json) {
    terminal.printJson({ clients: present });
    return 0;
  }
  const { colors } = terminal.stdout;
  if (present.length === 0) {
    const names = all.map((client) => client.name).join(", ");
    terminal.printWrapped(
      `No configuration file of an MCP client was found. toolmux knows: ${names}`,
    );
    return 0;
  }
  terminal.printTable(
    ["CLIENT", "TOOLMUX", "OTHER SERVERS", "FILE"],
    present.map(({ name, installed, servers, file = "", problem }) => [
      name,
      problem !== undefined
        ? { text: "not readable", color: colors.red }
        : installed
          ? { text: "installed", color: colors.green }
          : "no",
      String(servers),
      { text: file, isWhole: true },
    ]),
  );
  terminal.printWrapped(
    "To connect one to toolmux: toolmux install CLIENT; to connect all: toolmux install --all",
  );
  return 0;
}

/** Installs toolmux in all clients of this machine. One that fails does not stop the others. */
async function installInAll(
  invocation: Invocation<InstallOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const { json, print, project } = invocation.options;
  if (print || project) throw usageError("--all cannot be used with --print and --project.");
  const present = (await listClientApps(context)).filter((client) => client.exists);
  if (present.length === 0 && !json) return listClients(invocation, context);
  const documents: object[] = [];
  let code = 0;
  for (const { name, title } of present) {
    if (!json) terminal.printWrapped(terminal.stdout.colors.bold(title));
    try {
      documents.push(await installOne(name, invocation, context));
    } catch (thrown) {
      const error = toHubError(thrown);
      context.signal.throwIfAborted();
      code = error.properties.exit;
      documents.push({ client: name, ...errorDocument(error) });
      if (!json) terminal.printStderr(describeError(error));
    }
  }
  if (json) terminal.printJson({ clients: documents });
  await printSharingOffer(invocation, context);
  return code;
}

async function installIn(
  name: string,
  invocation: Invocation<InstallOptions>,
  context: CommandContext,
): Promise<number> {
  const { print, json } = invocation.options;
  if (print) return printEntry(name, invocation, context);
  const document = await installOne(name, invocation, context);
  if (json) context.terminal.printJson(document);
  if (document.action === "install" && document.written)
    await printSharingOffer(invocation, context);
  return 0;
}

/** Writes or removes the entry of toolmux in one client's file, and prints it for people. */
async function installOne(
  name: string,
  invocation: Invocation<InstallOptions>,
  context: CommandContext,
): Promise<InstallationDocument> {
  const { options } = invocation;
  const target = await findInstallTarget(name, options.project, context);
  const { client } = target;
  const request = requestOf(options);
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
  return document;
}

function requestOf(options: InstallOptions): InstallRequest {
  return { ...options, httpTokenEnv: options["http-token-env"] };
}

/** Prints the entry of toolmux, for a person to copy it into the client's file. */
async function printEntry(
  name: string,
  invocation: Invocation<InstallOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const { undo: isUndo, replace, json, project } = invocation.options;
  const target = await findInstallTarget(name, project, context);
  const request = requestOf(invocation.options);
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
  const { sources, doubled, planned, apply } = await prepareInstallation(
    target,
    request,
    invocation,
    context,
  );
  if (doubled.length > 0) {
    const names = doubled.map((name) => sanitizeLine(name)).join(", ");
    const { client } = target;
    print(
      `${count(doubled.length, "server")} of ${client.title} ${doubled.length === 1 ? "is" : "are"} in the manifest, too (${names}): the tools will be there twice. To avoid that: toolmux install ${client.name} --replace`,
    );
  }
  const { change } = planned;
  if (change === undefined) {
    print(`${file} already has this entry of toolmux: nothing was changed`);
    return planned;
  }
  const style = context.terminal.stdout;
  if (sources) print(describeImport(sources, request.secrets, style));
  print(formatChange(file, change, style));
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

/** Describes the change of the file: added lines, and the names of removed servers. */
function formatChange(
  file: string,
  { line = 1, removed, added }: NonNullable<InstallationDocument["change"]>,
  { colors }: TerminalStyle,
): string {
  return [
    colors.bold(sanitizeLine(`${file}:${line}`)),
    ...removed.map((name) => colors.red(`- "${sanitizeLine(name)}"`)),
    ...added.map((text) => colors.green(`+ ${sanitizeLine(text.replaceAll("\t", "  "))}`)),
  ].join("\n");
}
