import { usageError } from "../../base/errors.ts";
import { findRunningHubs, type RunningHub } from "../../control/running-hubs.ts";
import { isLoopback } from "../../base/loopback.ts";
import { loadManifest } from "../../manifest/load.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import { suggestName } from "../../manifest/problems.ts";
import type { ServiceStatusDocument } from "../../operations/documents.ts";
import { loadOptions } from "../../operations/load-manifest.ts";
import {
  installService,
  readServiceLog,
  removeService,
  serviceStatus,
} from "../../operations/service.ts";
import { shareCommand } from "../../operations/share.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { type HttpAddress, withManifestToken } from "../../host/http-address.ts";
import { type CommandContext, type Invocation, SERVICE_VERBS as VERBS } from "../command.ts";
import { readHttpAddress } from "../http-options.ts";
import { describeHub } from "../running-hub.ts";

interface ServiceOptions {
  readonly http: string | undefined;
  readonly json: boolean;
}

/** `toolmux service`: installs, removes and shows the service that runs a hub from login on. */
export async function service(
  invocation: Invocation<ServiceOptions>,
  context: CommandContext,
): Promise<number> {
  const [word = ""] = invocation.args;
  const verb = VERBS.find((each) => each === word);
  if (verb !== "install" && invocation.options.http !== undefined)
    throw usageError("--http belongs to: toolmux service install");
  switch (verb) {
    case "install":
      return install(invocation, context);
    case "remove":
      return remove(invocation, context);
    case "status":
      return status(invocation, context);
    case "log":
      return log(invocation, context);
    case undefined:
      throw usageError(
        `"toolmux service" needs one of: ${VERBS.join(", ")}.${suggestName(word, VERBS)}`,
      );
  }
}

async function install(
  invocation: Invocation<ServiceOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const loaded = await loadManifest(loadOptions(invocation, context));
  const manifest = loaded.ok ? loaded.manifest : undefined;
  const address = readHttpAddress({ http: invocation.options.http }, context);
  if (address !== undefined) await requireToken(address, manifest, context);
  const http = address && `${address.hostname}:${address.port}`;
  const document = await installService({ http }, invocation, context);
  if (invocation.options.json) {
    terminal.printJson(document);
    return 0;
  }
  const { file, name, changed, hint } = document;
  terminal.printWrapped(changed ? `written: ${file}` : `${file} is the same already`);
  terminal.printWrapped(`started: ${name}`);
  if (hint !== undefined) terminal.printWrapped(hint);
  if (http !== undefined)
    terminal.printWrapped(
      `Clients connect to http://${http}/mcp: toolmux install CLIENT --http URL`,
    );
  else if (manifest?.hub.shared !== true)
    terminal.printWrapped(
      `Clients use it only if they share one hub: ${shareCommand(invocation.config)}`,
    );
  terminal.printWrapped("To see it: toolmux service status; to remove it: toolmux service remove");
  return 0;
}

/**
 * Checks the token of an HTTP address as the service does when it starts, because nobody reads its refusal there.
 * @throws {HubError} usage if the address needs a token and has none; what reading the token throws
 */
async function requireToken(
  address: HttpAddress,
  manifest: Manifest | undefined,
  { env, platform }: CommandContext,
): Promise<void> {
  const { httpToken, clients = [] } = manifest ?? {};
  if (httpToken === undefined && clients.length === 0 && !isLoopback(address.hostname))
    throw usageError(
      `Other machines can reach ${address.hostname}, so a token is required: store it (toolmux secret set hub/token), and add to [hub] in the manifest: httpToken = "\${secret:hub/token}"`,
    );
  // The service has the home folder of the user, and none of the variables of this terminal.
  const { HOME } = env;
  await withManifestToken(address, httpToken, { env: { HOME }, platform }, clients.length > 0);
}

async function remove(
  { options }: Invocation<ServiceOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const document = await removeService(context);
  const { name, file, changed, hint } = document;
  if (options.json) terminal.printJson(document);
  else if (!changed) terminal.printWrapped(`${file} does not exist: nothing was changed`);
  else if (hint === undefined) terminal.printWrapped(`stopped ${name}, and removed ${file}`);
  else terminal.printWrapped(sanitizeLine(`removed ${file}. ${hint}`));
  return 0;
}

/** Prints the unit, and the hub that it runs. */
async function status(
  { options }: Invocation<ServiceOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const document = await serviceStatus(context);
  const { pid } = document;
  const hubs = pid === undefined ? [] : await findRunningHubs(context);
  const hub = hubs.find((each) => each.pid === pid);
  const code = document.state === "active" ? 0 : 3;
  if (options.json) {
    terminal.printJson({ ...document, hub: hub ?? null });
    return code;
  }
  for (const line of describeStatus(document, hub)) terminal.printWrapped(sanitizeLine(line));
  return code;
}

function describeStatus(
  document: ServiceStatusDocument,
  hub: RunningHub | undefined,
): readonly string[] {
  const { file, name, unit, state, enabled, pid, command = [], fault } = document;
  switch (unit) {
    case "absent":
      return ["No service is installed. To install one: toolmux service install"];
    case "foreign":
      return [`${file} was not written by toolmux, so it is left alone.`];
    case "installed":
      return [
        `${name}: ${state}${enabled === undefined ? "" : enabled ? ", starts at login" : ", does not start at login"}`,
        `unit: ${file}`,
        `runs: ${command.join(" ")}`,
        ...(hub === undefined
          ? pid === undefined
            ? ["No hub runs. To see why: toolmux service log"]
            : [`Its process ${pid} is no hub that can be asked yet.`]
          : [describeHub(hub)]),
        ...(fault === undefined ? [] : [`${fault} To correct it: toolmux service install`]),
      ];
  }
}

async function log(
  { options }: Invocation<ServiceOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const lines = await readServiceLog(context);
  if (options.json) terminal.printJson({ lines });
  else if (lines.length === 0) terminal.note("the log of the service is empty");
  else for (const line of lines) terminal.print(sanitizeLine(line));
  return 0;
}
