import { nameAndIdOfClient } from "../../base/client-name.ts";
import { count } from "../../base/format.ts";
import type { RunningHub } from "../../control/running-hubs.ts";
import type { ClientDocument, ModesDocument } from "../../control/schemas.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { usageError } from "../../base/errors.ts";
import type { CommandContext, Invocation } from "../command.ts";
import {
  askFor,
  chosenHubs,
  describeHub,
  type HubOptions,
  noteChoice,
  onlyHub,
} from "../running-hub.ts";

interface ModeOptions extends HubOptions {
  readonly client: string | undefined;
  readonly reset: boolean;
  readonly all: boolean;
}

/**
 * `toolmux mode`: shows the modes of running hubs; `mode NAME` chooses one for all clients or, with `--client`, for one;
 * `mode show NAME` prints what a mode shows.
 */
export async function mode(
  invocation: Invocation<ModeOptions>,
  context: CommandContext,
): Promise<number> {
  const { args, options } = invocation;
  const [first, second, ...more] = args;
  const isShow = first === "show" && second !== undefined;
  if (more.length > 0 || (second !== undefined && !isShow)) {
    throw usageError("Which mode? toolmux mode NAME, or toolmux mode show NAME.");
  }
  if (options.reset && first !== undefined) {
    throw usageError("--reset undoes a choice: do not name a mode with it.");
  }
  if (isShow) return show(second, invocation, context);
  if (first !== undefined || options.reset) return choose(first ?? null, invocation, context);
  if (options.client !== undefined) {
    throw usageError("--client needs a mode: toolmux mode NAME --client ID, or --reset.");
  }
  return list(invocation, context);
}

async function list(invocation: Invocation<ModeOptions>, context: CommandContext): Promise<number> {
  const hubs = await chosenHubs(invocation, context);
  const documents = await Promise.all(
    hubs.map(async (hub) => ({
      hub,
      ...(await askFor(hub, "GET /mode", context)),
      connected: (await askFor(hub, "GET /clients", context)).clients,
    })),
  );
  const { terminal } = context;
  if (invocation.options.json) {
    terminal.printJson({
      hubs: documents.map(({ hub, connected, ...rest }) => ({
        hub: hub.pid,
        ...rest,
        limits: connected.flatMap(({ id, limits }) => (limits ? [{ client: id, ...limits }] : [])),
      })),
    });
    return 0;
  }
  for (const { hub, mode: current, modes, connected } of documents) {
    printHub(hub, context);
    const rows = modes.map(({ name, title, icon = "", tools, clients, problem }) => [
      name === current ? `${name} *` : name,
      icon === "" ? title : `${icon} ${title}`,
      problem === undefined ? String(tools) : "wrong",
      clients.map((id) => nameOf(id, connected)).join(", "),
    ]);
    terminal.printTable(["MODE", "TITLE", "TOOLS", "CLIENTS"], rows);
    const limited = connected.flatMap((client) =>
      client.limits === undefined
        ? []
        : [[nameAndIdOfClient(client), describeLimits(client.limits)]],
    );
    terminal.printTable(["CLIENT", "LIMITED BY ITS TOKEN OR URL TO"], limited);
  }
  const note = "* the mode of clients for which no other mode is chosen";
  terminal.printWrapped(terminal.stdout.colors.dim(note));
  return 0;
}

function printHub(hub: RunningHub, { terminal }: CommandContext): void {
  terminal.printWrapped(terminal.stdout.colors.dim(sanitizeLine(`in ${describeHub(hub)}`)));
}

function nameOf(id: string, clients: readonly ClientDocument[]): string {
  return nameAndIdOfClient(clients.find((client) => client.id === id) ?? { id });
}

function describeLimits({
  modes,
  servers,
  approval,
}: NonNullable<ClientDocument["limits"]>): string {
  const parts = [
    ...(modes.length > 0 ? [`mode ${modes.join(" and ")}`] : []),
    ...(servers === undefined ? [] : [`servers ${servers.join(", ") || "none"}`]),
    ...(approval === undefined ? [] : [`approval ${approval}`]),
  ];
  return parts.join("; ");
}

/** Chooses a mode for all clients, or for the one of `--client`. @param name null undoes the choice */
async function choose(
  name: string | null,
  invocation: Invocation<ModeOptions>,
  context: CommandContext,
): Promise<number> {
  const { client, all, json } = invocation.options;
  const hubs = all
    ? await chosenHubs(invocation, context)
    : [await hubOf(client, invocation, context)];
  const body = { mode: name };
  const { terminal } = context;
  if (client !== undefined) {
    const documents = await Promise.all(
      hubs.map(async (hub) => ({
        hub: hub.pid,
        ...(await askFor(hub, "PUT /clients/:client/mode", context, { params: { client }, body })),
      })),
    );
    if (json) terminal.printJson({ clients: documents });
    for (const document of json ? [] : documents) {
      terminal.printWrapped(
        sanitizeLine(`client ${nameAndIdOfClient(document)}: mode ${document.mode}`),
      );
      const others = document.modes.filter((one) => one !== document.mode);
      if (others.length > 0)
        terminal.printWrapped(sanitizeLine(`It is limited to ${others.join(" and ")}, too.`));
    }
    return 0;
  }
  const documents = await Promise.all(
    hubs.map(async (hub) => ({
      hub,
      ...(await askFor(hub, "PUT /mode", context, { body })),
    })),
  );
  if (json) {
    terminal.printJson({ hubs: documents.map(({ hub, ...rest }) => ({ hub: hub.pid, ...rest })) });
    return 0;
  }
  for (const { hub, mode: current, modes } of documents) {
    const spec = modes.find((one) => one.name === current);
    const tools = isUnknown(modes)
      ? "whose tools are known when its servers have started"
      : count(spec?.tools ?? 0, "tool");
    const others = modes.filter((one) => one.name !== current).flatMap((one) => one.clients);
    const connected =
      others.length === 0 ? [] : (await askFor(hub, "GET /clients", context)).clients;
    const names = others.map((id) => nameOf(id, connected));
    const but = others.length === 0 ? "" : `; not in it: ${names.join(", ")}`;
    terminal.printWrapped(sanitizeLine(`toolmux ${hub.pid}: mode ${current}, ${tools}${but}`));
  }
  return 0;
}

/** Finds the hub to which a client is connected; without a client, the only hub. @throws {HubError} usage */
async function hubOf(
  client: string | undefined,
  invocation: Invocation<ModeOptions>,
  context: CommandContext,
): Promise<RunningHub> {
  if (client === undefined) return onlyHub(invocation, context);
  const hubs = await chosenHubs(invocation, context);
  const [first] = hubs;
  if (hubs.length === 1) return first;
  const found = await Promise.all(
    hubs.map(async (hub) => {
      const answer = await askFor(hub, "GET /clients", context);
      return answer.clients.some(({ id, principal }) => id === client || principal === client)
        ? [hub]
        : [];
    }),
  );
  const [only, ...others] = found.flat();
  if (only !== undefined && others.length === 0) return only;
  return onlyHub(invocation, context);
}

async function show(
  name: string,
  invocation: Invocation<ModeOptions>,
  context: CommandContext,
): Promise<number> {
  const hubs = await chosenHubs(invocation, context);
  const [hub] = hubs;
  const document = await askFor(hub, "GET /mode/:name", context, { params: { name } });
  noteChoice(hubs, context);
  const { terminal } = context;
  if (invocation.options.json) {
    terminal.printJson({ hub: hub.pid, ...document });
    return 0;
  }
  printHub(hub, context);
  const { title, icon = "", tools, prompts, resources, idle, problem } = document;
  terminal.printWrapped(terminal.stdout.colors.bold(sanitizeLine(`${icon} ${title}`.trim())));
  if (problem !== undefined) terminal.printWrapped(sanitizeLine(`shows nothing: ${problem}`));
  const rows = tools.map((tool) => [tool.name, tool.server, firstLine(tool.description ?? "")]);
  terminal.printTable(["TOOL", "SERVER", "DESCRIPTION"], rows);
  const counts = [
    count(tools.length, "tool"),
    count(prompts, "prompt"),
    count(resources, "resource"),
  ];
  terminal.printWrapped(counts.join(", "));
  if (tools.length === 0 && isUnknown((await askFor(hub, "GET /mode", context)).modes))
    terminal.printWrapped("No server has listed its tools yet: they start with the first client.");
  for (const part of idle) terminal.printWrapped(sanitizeLine(`${part} matches no tool`));
  return 0;
}

/** Whether all modes have 0 tools, which means that no server has listed its tools yet. */
function isUnknown(modes: ModesDocument["modes"]): boolean {
  return modes.every(({ tools }) => tools === 0);
}

function firstLine(text: string): string {
  return text.trim().replace(/\n[^]*/, "");
}
