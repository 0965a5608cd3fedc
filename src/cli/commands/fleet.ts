import { HubError, usageError } from "../../base/errors.ts";
import { count, formatDuration } from "../../base/format.ts";
import type { FleetDocument } from "../../control/schemas.ts";
import { suggestName } from "../../manifest/problems.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { type CommandContext, FLEET_VERBS, type Invocation } from "../command.ts";
import { askFor, chosenHubs, type HubOptions } from "../running-hub.ts";

/** `toolmux fleet`: shows the fleet of the running hubs; `ping` pings its machines first. */
export async function fleet(
  invocation: Invocation<HubOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const [word] = invocation.args;
  const verb = FLEET_VERBS.find((each) => each === word);
  if (word !== undefined && verb === undefined)
    throw usageError(`"toolmux fleet" takes ping, or nothing.${suggestName(word, FLEET_VERBS)}`);
  const hubs = await chosenHubs(invocation, context);
  const route = verb === "ping" ? "POST /fleet/ping" : "GET /fleet";
  const documents = await Promise.all(
    hubs.map(async (hub) => ({ pid: hub.pid, ...(await askFor(hub, route, context)) })),
  );
  if (invocation.options.json) terminal.printJson({ hubs: documents });
  else for (const document of documents) printFleet(document, context);
  if (documents.every(({ isConfigured }) => !isConfigured)) {
    const text = "The manifest has no table fleet, so this hub is alone.";
    throw new HubError("notSupported", text, {
      hint: 'To join a fleet, write into your own manifest: [fleet] url = "nats://…" export = ["SERVER"]',
    });
  }
  return documents.some(({ connected }) => connected !== undefined) ? 0 : 3;
}

function printFleet(document: FleetDocument & { readonly pid: number }, context: CommandContext) {
  const { terminal } = context;
  const { pid, isConfigured, connected, error, name, wanted, exported, machines } = document;
  if (!isConfigured) return;
  const print = (text: string): void => terminal.printWrapped(sanitizeLine(text));
  if (connected === undefined) {
    print(
      `toolmux ${pid} is not connected to NATS (${document.url.join(", ")}): ${error ?? "it is connecting"}`,
    );
    return;
  }
  print(
    `toolmux ${pid} is "${name}" at NATS ${connected}; it exports ${exported.join(", ") || "nothing"}.`,
  );
  if (wanted !== undefined) print(`Another hub is named "${wanted}": set another fleet.name.`);
  for (const subject of document.denied) print(`NATS does not permit: ${subject}`);
  if (machines.length === 0) {
    print("No other machine of the fleet is known.");
    return;
  }
  const rows = machines.map(({ name: machine, version, servers, open, roundTrip, leaving }) => [
    leaving === true ? `${machine} (leaving)` : machine,
    version,
    servers.join(", ") || "nothing",
    String(open),
    roundTrip === undefined ? "" : formatDuration(roundTrip),
  ]);
  terminal.printTable(["MACHINE", "VERSION", "EXPORTS", "CALLS", "PING"], rows);
  const { imported, requests } = document;
  for (const { server, fleet: remote, machines: from } of imported) {
    const what = server === remote ? server : `${server} (${remote} of the fleet)`;
    print(`${what}: ${from.length === 0 ? "no machine exports it now" : from.join(", ")}`);
  }
  const { total, refused, open } = requests;
  if (total > 0)
    print(`${count(total, "request")} of other machines so far: ${refused} refused, ${open} open.`);
}
