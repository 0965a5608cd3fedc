import type { ServerTransport } from "../transport/transport.ts";

/** What is measured: a hub, or a server. */
export interface BenchSubject {
  readonly kind: "hub" | "server";
  /** For people; holds no secret. */
  readonly name: string;
  /** How a call may show that it has arrived; absent: nothing of ours stands at the server's end. */
  readonly taps?: ProxyFolder | undefined;
  /** Of a hub: a first list that came so long after its start, in ms, may lack what servers have that are still starting. */
  readonly listWait?: number | undefined;
  /** A link to it that is not open yet; of what is started, to a process of its own. @throws {HubError} valueMissing */
  makeLink(): Promise<ServerTransport>;
}

/** The relays that stand in front of a server, and tell what arrives there. */
export interface ProxyFolder {
  /** The processes that they are. */
  pids(): Promise<ReadonlySet<number>>;
  /** Which marked calls it has heard the cancel of, and when: ms since the epoch and parts of them. */
  cancels(): Promise<ReadonlyMap<number, number>>;
}
