import { abortable } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { ApprovalDecision, ApprovalPrompt } from "../base/hub-events.ts";
import { sanitizeLine, sanitizeLines } from "../terminal/log.ts";
import type { AskLine } from "./prompt.ts";

/** The decision for each word that a person can type. */
const WORDS: ReadonlyMap<string, ApprovalDecision> = new Map([
  ["", "deny"],
  ["n", "deny"],
  ["no", "deny"],
  ["y", "once"],
  ["yes", "once"],
  ["s", "session"],
  ["session", "session"],
  ["a", "always"],
  ["always", "always"],
]);

const LABELS: Readonly<Record<ApprovalDecision, string>> = {
  once: "[y]es",
  session: "[s]ession",
  always: "[a]lways",
  deny: "[N]o",
};

/** The question that offers these decisions to a person: `Allow it? [y]es [N]o:`. */
export function approvalQuestionFor(choices: readonly ApprovalDecision[]): string {
  return `Allow it? ${choices.map((choice) => LABELS[choice]).join(" ")}:`;
}

/** The decision that a typed line stands for; undefined if that is not one of the choices. */
export function decisionOf(
  line: string,
  choices: readonly ApprovalDecision[],
): ApprovalDecision | undefined {
  const wish = WORDS.get(line.trim().toLowerCase());
  return choices.find((choice) => choice === wish);
}

export interface ApprovalPrompterOptions {
  readonly ask: AskLine;
  print(text: string): void;
  /** Sends the person's decision. @throws {HubError} if the question needs no decision any more */
  answer(question: ApprovalPrompt, decision: ApprovalDecision): Promise<void>;
}

/** Asks a person in the terminal to allow calls, one call after the other. */
export class ApprovalPrompter {
  readonly #options: ApprovalPrompterOptions;
  readonly #waiting = new Map<ApprovalPrompt["id"], ApprovalPrompt>();
  /**
   * Ids of questions that were decided or withdrawn. `add` ignores these questions, because a question may arrive after
   * it was decided or withdrawn.
   */
  readonly #settled = new Set<string>();
  #shown: { readonly id: string; readonly abort: AbortController } | undefined;
  #changed = Promise.withResolvers<void>();

  constructor(options: ApprovalPrompterOptions) {
    this.#options = options;
  }

  /** Queues a question, unless it was already decided or withdrawn. */
  add(question: ApprovalPrompt): void {
    if (this.#settled.has(question.id)) return;
    this.#waiting.set(question.id, question);
    this.#changed.resolve();
    this.#changed = Promise.withResolvers<void>();
  }

  /** Removes a question that needs no decision any more. @param note the reason, which is shown to the person */
  remove(id: string, note: string): void {
    this.#settled.add(id);
    this.#waiting.delete(id);
    if (this.#shown?.id === id) this.#shown.abort.abort(new HubError("cancelled", note));
  }

  /** Asks the queued questions until the signal is aborted. @throws the signal's reason */
  async run(signal: AbortSignal): Promise<never> {
    for (;;) {
      signal.throwIfAborted();
      const [question] = this.#waiting.values();
      if (question === undefined) await abortable(this.#changed.promise, signal);
      else await this.#ask(question);
    }
  }

  async #ask(question: ApprovalPrompt): Promise<void> {
    const options = this.#options;
    const { id, name, choices } = question;
    const abort = new AbortController();
    this.#shown = { id, abort };
    options.print(describePrompt(question));
    try {
      const askOptions = { signal: abort.signal, dropsTyped: true, failsAtEnd: true };
      let decision: ApprovalDecision | undefined;
      while (decision === undefined)
        decision = decisionOf(await options.ask(approvalQuestionFor(choices), askOptions), choices);
      this.#shown = undefined;
      await options.answer(question, decision);
      options.print(`${sanitizeLine(name)}: ${decision}`);
    } catch (error) {
      // Goes on with the next question if this one was withdrawn, or if somebody else has decided it.
      if (!(error instanceof HubError) || (error.code === "cancelled" && !abort.signal.aborted))
        throw error;
      options.print(sanitizeLine(`${name}: ${error.message}`));
    } finally {
      this.#shown = undefined;
      this.#settled.add(id);
      this.#waiting.delete(id);
    }
  }
}

/** Describes a question for people, in several lines. */
export function describePrompt(question: ApprovalPrompt): string {
  const { call, client, clientName, agent, server, name, argumentsShown, reason } = question;
  // The principal comes from the client's token. The name that a client gives itself proves nothing.
  const { principal, unavailable = {} } = question;
  const who = [
    agent === undefined ? "" : `agent ${agent} of `,
    principal ?? (clientName || client || "an unidentified client"),
  ].join("");
  return [
    "",
    sanitizeLine(`call ${call}: ${who} wants to run ${name} of server ${server}`),
    sanitizeLine(reason),
    sanitizeLines(argumentsShown),
    ...Object.entries(unavailable).map(([decision, why]) =>
      sanitizeLine(`"${decision}" is not possible: ${why}`),
    ),
  ].join("\n");
}
