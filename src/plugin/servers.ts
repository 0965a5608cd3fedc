import { missingPluginProblem } from "../manifest/plugins.ts";
import { isPrefix } from "../manifest/prefix.ts";
import { addPositionsLater } from "../manifest/place.ts";
import { type UnplacedProblem, findNearest, type Problem } from "../manifest/problems.ts";
import type { Manifest, PluginServer, ServerSpec } from "../manifest/schema.ts";
import type { EncodedMessage } from "../jsonrpc/message.ts";
import type {
  SentRequest,
  Transport,
  TransportEvents,
  SendOptions,
  NegotiatedProtocol,
  ProcessStats,
} from "../transport/transport.ts";
import type { Member } from "./instance.ts";

/** A server or scheme of a plugin that cannot be used. */
export interface ServerFault {
  readonly member: Member;
  readonly message: string;
}

/** A problem of an entry in a file, without its position. */
export interface Fault {
  readonly file: string;
  readonly complaint: UnplacedProblem;
}

/** Adds positions to problems of several files. */
export async function placeFaults(faults: readonly Fault[]): Promise<readonly Problem[]> {
  const files = [...new Set(faults.map(({ file }) => file))];
  const problems = files.map((file) => {
    const own = faults.filter((fault) => fault.file === file);
    return addPositionsLater(
      file,
      own.map(({ complaint }) => complaint),
    );
  });
  return (await Promise.all(problems)).flat();
}

/** A problem of one server's entry. */
export interface TableFault extends Fault {
  readonly server: string;
}

/** The manifest with those servers marked as invalid. */
export async function failServers(
  manifest: Manifest,
  faults: readonly TableFault[],
): Promise<Manifest> {
  if (faults.length === 0) return manifest;
  const servers = manifest.servers.map(async (spec): Promise<ServerSpec> => {
    const own = faults.filter(({ server }) => server === spec.name);
    if (own.length === 0) return spec;
    const { name, enabled, prefix } = spec;
    return { kind: "invalid", name, enabled, prefix, problems: await placeFaults(own) };
  });
  return { ...manifest, servers: await Promise.all(servers) };
}

/** The manifest's servers whose plugin does not exist. `names` are the plugins' own names. */
export function findStrays({ servers }: Manifest, names: readonly string[]): readonly TableFault[] {
  return servers.flatMap((spec) => {
    if (spec.kind !== "plugin" || names.includes(spec.plugin)) return [];
    const { file, path } = spec.origin;
    return [{ file, server: spec.name, complaint: missingPluginProblem(spec.plugin, path, names) }];
  });
}

/** The manifest's servers that their plugin, and every other plugin, does not have. */
export function findMissing(
  { servers }: Manifest,
  members: readonly Member[],
): readonly TableFault[] {
  return servers.flatMap((spec) => {
    const member = members.find(({ name }) => spec.kind === "plugin" && name === spec.plugin);
    const isMade = members.some(({ parts }) => Object.hasOwn(parts.servers ?? {}, spec.name));
    if (spec.kind !== "plugin" || member === undefined || isMade) return [];
    const { file, path } = spec.origin;
    const nearest = findNearest(spec.name, Object.keys(member.parts.servers ?? {}));
    const guess = nearest === undefined ? "" : `; did you mean "${nearest}"?`;
    const message = `plugin "${spec.plugin}" has no server "${spec.name}"${guess}`;
    return [{ file, server: spec.name, complaint: { path, at: "key", message } }];
  });
}

/**
 * The manifest's servers, and after them the plugins' servers that the manifest does not mention: these have the
 * manifest's defaults, and their names as prefixes.
 * @param set the number of the plugin set
 */
export function completeServers(
  { hub, servers, defaults }: Manifest,
  members: readonly Member[],
  set: number,
): { readonly servers: readonly ServerSpec[]; readonly faults: readonly ServerFault[] } {
  const complete = servers.map((spec) => (spec.kind === "plugin" ? { ...spec, set } : spec));
  const faults: ServerFault[] = [];
  const owners = new Map<string, Member>();
  for (const member of members) {
    for (const name of Object.keys(member.parts.servers ?? {})) {
      const fault = (message: string): void => void faults.push({ member, message });
      const owner = owners.get(name);
      const said = complete.find((spec) => spec.name === name);
      const isTaken = complete.some((spec) => spec.enabled && spec.prefix === name);
      const advice = `say so under [servers.NAME] with plugin = "${member.name}"`;
      if (name === "") {
        fault("one of its servers has no name");
      } else if (owner !== undefined) {
        fault(`its server "${name}" is also one of plugin "${owner.name}"`);
      } else if (said === undefined && (isTaken || !isPrefix(name, hub.separator))) {
        fault(
          `its server "${name}" needs another prefix; ${advice.replace("NAME", name)} and prefix = "…"`,
        );
      } else if (
        said !== undefined &&
        said.kind !== "invalid" &&
        !(said.kind === "plugin" && said.plugin === member.name)
      ) {
        fault(`its server "${name}" has the name of another server of the manifest`);
      } else if (said === undefined) {
        complete.push(specOf(name, member, set, defaults));
      }
      owners.set(name, owner ?? member);
    }
  }
  return { servers: complete, faults };
}

function specOf(
  name: string,
  { name: plugin, spec: { origin } }: Member,
  set: number,
  defaults: Manifest["defaults"],
): PluginServer {
  const prompts = { allow: undefined, deny: [], rename: {} };
  const tools = { ...prompts, timeout: {} };
  const common = { enabled: true, prefix: name, isolation: "shared", lazy: false } as const;
  const settings = { ...common, era: "auto" } as const;
  return { kind: "plugin", name, plugin, origin, set, ...settings, ...defaults, tools, prompts };
}

/** Counts the open transports. */
export interface Lessor {
  enter(): void;
  leave(): void;
}

/** A plugin's transport that keeps the plugin set in use while it is open. */
export class LeasedLink implements Transport {
  readonly #link: Transport;
  readonly #lessor: Lessor;
  #state: "new" | "used" | "over" = "new";
  /** Defined only if the transport has them: the hub recognizes an HTTP transport by `adopt`. */
  readonly redact?: (text: string) => string;
  readonly adopt?: (spoken: NegotiatedProtocol) => void;

  constructor(link: Transport, lessor: Lessor) {
    this.#link = link;
    this.#lessor = lessor;
    if (link.redact !== undefined) this.redact = (text) => link.redact?.(text) ?? text;
    if (link.adopt !== undefined) this.adopt = (spoken) => link.adopt?.(spoken);
  }

  get hasStreams(): true | undefined {
    return this.#link.hasStreams;
  }

  async open(events: TransportEvents, signal: AbortSignal): Promise<void> {
    if (this.#state === "new") {
      this.#state = "used";
      this.#lessor.enter();
    }
    const told: TransportEvents = {
      frame: (frame, exchange, inbound) => events.frame(frame, exchange, inbound),
      log: (level, source, text) => events.log(level, source, text),
      flaw: (flaw) => events.flaw?.(flaw),
      oversized: (head, tail, size) => events.oversized(head, tail, size),
      pressure: (full) => events.pressure(full),
      challenged: (challenge) => events.challenged?.(challenge),
      closed: (cause) => {
        events.closed(cause);
        this.#end();
      },
    };
    try {
      await this.#link.open(told, signal);
    } catch (error) {
      this.#end();
      throw error;
    }
  }

  send(message: EncodedMessage, info?: SendOptions): SentRequest {
    return this.#link.send(message, info);
  }

  get queued(): number {
    return this.#link.queued;
  }

  pause(): void {
    this.#link.pause();
  }

  resume(): void {
    this.#link.resume();
  }

  processStats(): Promise<ProcessStats | undefined> {
    return this.#link.processStats();
  }

  async close(): Promise<void> {
    try {
      await this.#link.close();
    } finally {
      this.#end();
    }
  }

  #end(): void {
    if (this.#state === "used") this.#lessor.leave();
    this.#state = "over";
  }
}
