import type { HubError } from "../base/errors.ts";
import type { RunnableServer } from "../manifest/schema.ts";
import type { Era } from "../protocol/era.ts";
import type { EraVerdict } from "../snapshot/snapshots.ts";
import type { Session } from "./session.ts";

/**
 * The era that one server was found to speak, kept from one of its processes to the next, so that it is not probed each
 * time.
 */
export class EraMemory {
  #verdict: EraVerdict | undefined;
  /** A process of it exited when it was sent `server/discover`. */
  #hasExited = false;

  /** What was found; undefined if it is not to be relied on. */
  get verdict(): EraVerdict | undefined {
    return this.#verdict;
  }

  get knownEra(): Era | undefined {
    return this.#verdict?.era ?? (this.#hasExited ? "legacy" : undefined);
  }

  /** The server exited when it was sent `server/discover`: only a legacy server may. */
  onProbeExit(): void {
    this.#verdict = undefined;
    this.#hasExited = true;
  }

  /** Takes what an earlier run of the hub has saved, unless this run already knows better. */
  loadSaved(verdict: EraVerdict | undefined): void {
    this.#verdict ??= verdict;
  }

  /** A session was opened. An era that the manifest prescribes is not a finding. */
  onConnected({ era, greeting }: Session, spec: RunnableServer): void {
    const evidence = greeting?.evidence ?? "memory";
    if (spec.era !== "auto") this.#verdict = undefined;
    else if (evidence !== "memory" || this.#verdict?.era !== era) {
      const isGuess = evidence === "silence";
      this.#verdict = { era, askedAt: Date.now(), ...(isGuess && { isGuess }) };
    }
  }

  /** The server has answered `server/discover` as a modern one after all, too late for this session. */
  onLateModernAnswer(): void {
    this.#verdict = { era: "modern", askedAt: Date.now() };
  }

  /**
   * A connection failed during the handshake: the remembered era may be why. The memory of an exit stays if the server
   * has only exited again.
   */
  onHandshakeFailure({ code }: HubError): void {
    this.#verdict = undefined;
    if (code !== "connectionLost") this.#hasExited = false;
  }
}
