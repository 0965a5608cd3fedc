import { isPrefix } from "../manifest/prefix.ts";
import type { Manifest, PluginServer, ServerSpec } from "../manifest/schema.ts";
import type { Message } from "../wire/jsonrpc.ts";
import type { Exchange, Link, LinkEvents, Outgoing, Vitals } from "../wire/link.ts";
import type { Member } from "./member.ts";

/** Something that a plugin has and that cannot be used. */
export interface ServerFault {
  readonly member: Member;
  readonly message: string;
}

/**
 * The manifest's servers, and after them those of its plugins that it says nothing of: they have what the manifest sets by
 * default, and their own names as prefixes.
 * @param set the number of the plugins' set
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
      } else if (said !== undefined && !(said.kind === "plugin" && said.plugin === member.name)) {
        fault(`its server "${name}" has the name of another server of the manifest`);
      } else if (said === undefined) {
        complete.push(specOf(name, member.name, set, defaults));
      }
      owners.set(name, owner ?? member);
    }
  }
  return { servers: complete, faults };
}

function specOf(
  name: string,
  plugin: string,
  set: number,
  defaults: Manifest["defaults"],
): PluginServer {
  const prompts = { allow: undefined, deny: [], rename: {} };
  const tools = { ...prompts, timeout: {} };
  const settings = { enabled: true, prefix: name, isolation: "shared", era: "auto", lazy: false } as const;
  return { kind: "plugin", name, plugin, set, ...settings, ...defaults, tools, prompts };
}

/** Who wants to know whether somebody uses a link. */
export interface Lessor {
  enter(): void;
  leave(): void;
}

/** A link of a plugin, which must not end while somebody uses it. */
export class LeasedLink implements Link {
  readonly #link: Link;
  readonly #lessor: Lessor;
  #state: "new" | "used" | "over" = "new";

  constructor(link: Link, lessor: Lessor) {
    this.#link = link;
    this.#lessor = lessor;
  }

  async open(events: LinkEvents, signal: AbortSignal): Promise<void> {
    if (this.#state === "new") {
      this.#state = "used";
      this.#lessor.enter();
    }
    const told: LinkEvents = {
      frame: (frame, exchange) => events.frame(frame, exchange),
      log: (level, source, text) => events.log(level, source, text),
      oversized: (head, tail, size) => events.oversized(head, tail, size),
      pressure: (full) => events.pressure(full),
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

  send(message: Message, info?: Outgoing): Exchange {
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

  vitals(): Promise<Vitals | undefined> {
    return this.#link.vitals();
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
