import type { HubError } from "../errors.ts";
import type { RunnableServer } from "../manifest/schema.ts";
import type { Era } from "../protocol/era.ts";
import type { Verdict } from "../snapshot/snapshot.ts";
import type { Session } from "./session.ts";

/** What one server was found to speak, from one of its processes to the next, so that it is not asked each time. */
export class Dialects {
  #verdict: Verdict | undefined;
  /** One of its processes did not survive being asked. */
  #hasDied = false;

  /** What was found, as far as it is to be relied on. */
  get verdict(): Verdict | undefined {
    return this.#verdict;
  }

  get known(): Era | undefined {
    return this.#verdict?.era ?? (this.#hasDied ? "legacy" : undefined);
  }

  /** It did not survive being asked: only those of the legacy era may do that. */
  died(): void {
    this.#verdict = undefined;
    this.#hasDied = true;
  }

  /** What is remembered of an earlier life of the hub; the server itself may have been faster. */
  recall(verdict: Verdict | undefined): void {
    this.#verdict ??= verdict;
  }

  /** It was met. What the manifest says of it is no finding. */
  met({ era, greeting }: Session, spec: RunnableServer): void {
    const evidence = greeting?.evidence ?? "memory";
    if (spec.era !== "auto") this.#verdict = undefined;
    else if (evidence !== "memory" || this.#verdict?.era !== era) {
      const isGuess = evidence === "silence";
      this.#verdict = { era, askedAt: Date.now(), ...(isGuess && { isGuess }) };
    }
  }

  /** It has said yet that it speaks the modern era, too late for this time. */
  learn(): void {
    this.#verdict = { era: "modern", askedAt: Date.now() };
  }

  /** It could not be met: whatever was known of it may be why. That it dies anyway is no reason to ask it once more. */
  forget({ code }: HubError): void {
    this.#verdict = undefined;
    if (code !== "connectionLost") this.#hasDied = false;
  }
}
