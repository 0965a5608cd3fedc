import { usageError } from "../../base/errors.ts";
import { count } from "../../base/format.ts";
import { readSharing } from "../../control/sharing.ts";
import { suggestName } from "../../manifest/problems.ts";
import type { SharingDocument } from "../../operations/documents.ts";
import { describeFigures, setSharing, shareCommand } from "../../operations/share.ts";
import { type CommandContext, type Invocation, SHARE_VERBS as VERBS } from "../command.ts";
import { servingHubs } from "../running-hub.ts";

/** `toolmux share`: shows what one hub for all clients would save; `on` and `off` set `hub.shared`. */
export async function share(
  invocation: Invocation<{ readonly json: boolean }>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const { json } = invocation.options;
  const [word] = invocation.args;
  const verb = VERBS.find((each) => each === word);
  if (word !== undefined && verb === undefined)
    throw usageError(`"toolmux share" takes on or off, or nothing.${suggestName(word, VERBS)}`);
  const hubs = await servingHubs(invocation, context);
  const setting =
    verb === undefined ? undefined : await setSharing(verb === "on", invocation, context);
  const sharing = await readSharing(hubs, invocation, context);
  if (json) {
    terminal.printJson({ ...sharing, ...(setting !== undefined && { setting }) });
    return 0;
  }
  if (setting !== undefined) {
    const { file, shared, changed } = setting;
    terminal.printWrapped(
      `${changed ? "set" : "already set"}: [hub] shared = ${shared} in ${file}`,
    );
    if (shared !== sharing.enabled)
      terminal.note(
        `it has no effect: another manifest, or TOOLMUX_SERVERS, says otherwise (toolmux check)`,
      );
    for (const line of describeRest(sharing)) terminal.printWrapped(line);
    return 0;
  }
  for (const line of describeSharing(sharing, invocation.config)) terminal.printWrapped(line);
  return 0;
}

/** What runs, what would run, and what to do. */
function describeSharing(sharing: SharingDocument, config: readonly string[]): readonly string[] {
  const { enabled, now, perValue, sharedHubs } = sharing;
  if (enabled) {
    const [pid] = sharedHubs;
    const state = pid === undefined ? "no client uses it now" : `it is toolmux ${pid}`;
    return [
      `Shared: clients that start toolmux use one hub ([hub] shared = true); ${state}.`,
      ...describeRest(sharing),
      `To give each client its own hub again: ${shareCommand(config).replace(/on$/, "off")}`,
    ];
  }
  const values = perValue.map(
    ({ server, names }) => `"${server}" would run once for each value of ${names.join(", ")}.`,
  );
  const figures =
    now.hubs === 0
      ? "Not shared: each client that starts toolmux has its own hub and its own servers. None runs now, so there are no figures."
      : `Not shared: ${describeFigures(sharing)}.`;
  return [figures, ...values, `To let all clients share one hub: ${shareCommand(config)}`];
}

/** What hubs that run already do, because a setting counts when a client starts toolmux the next time. */
function describeRest({ enabled, privateHubs, sharedHubs }: SharingDocument): readonly string[] {
  const old = enabled ? privateHubs : sharedHubs;
  if (old.length === 0) return [];
  const noun = `${count(old.length, enabled ? "private hub" : "shared hub")} (${old.join(", ")})`;
  const until = enabled && old.length === 1 ? "its client restarts" : "their clients restart";
  return [`${noun} ${old.length === 1 ? "goes" : "go"} on until ${until}.`];
}
