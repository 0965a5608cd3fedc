import type { ModelPart } from "./model.ts";

type TextPart = Extract<ModelPart, { type: "text" | "thinking" }>;

const OPENINGS = ["<think>", "<thinking>"];

/**
 * Separates what a model thinks from its answer, where the server of the model leaves that to its client: a text that
 * begins with `<think>` is thinking until `</think>`, or until its end. Tags elsewhere are text. The tags may be split
 * over several deltas.
 */
export class ThinkTags {
  #state: "start" | "thinking" | "gap" | "text" = "start";
  /** The end of the text so far, which may be a part of a tag. */
  #held = "";
  #closing = "";

  /** The parts of the next delta of the text. */
  push(delta: string): readonly TextPart[] {
    let text = this.#held + delta;
    this.#held = "";
    const parts: TextPart[] = [];
    if (this.#state === "start") {
      const trimmed = text.trimStart();
      const head = trimmed.toLowerCase();
      const opening = OPENINGS.find((tag) => head.startsWith(tag));
      if (opening !== undefined) {
        this.#state = "thinking";
        this.#closing = opening.replace("<", "</");
        text = trimmed.slice(opening.length);
      } else if (OPENINGS.some((tag) => tag.startsWith(head))) {
        this.#held = text;
        return parts;
      } else this.#state = "text";
    }
    if (this.#state === "thinking") {
      const at = text.toLowerCase().indexOf(this.#closing);
      const end = at < 0 ? text.length - partialTagAt(text, this.#closing) : at;
      if (end > 0) parts.push({ type: "thinking", text: text.slice(0, end) });
      if (at < 0) {
        this.#held = text.slice(end);
        return parts;
      }
      this.#state = "gap";
      text = text.slice(at + this.#closing.length);
    }
    // White space between the tag and the answer belongs to neither.
    if (this.#state === "gap") {
      text = text.trimStart();
      if (text !== "") this.#state = "text";
    }
    if (text !== "") parts.push({ type: "text", text });
    return parts;
  }

  /** The rest of a text that has ended. */
  end(): readonly TextPart[] {
    const text = this.#held;
    this.#held = "";
    return text === "" ? [] : [{ type: this.#state === "thinking" ? "thinking" : "text", text }];
  }
}

/** The length of the longest end of the text that is the beginning of a tag. */
function partialTagAt(text: string, tag: string): number {
  const tail = text.slice(-(tag.length - 1)).toLowerCase();
  for (let length = tail.length; length > 0; length--)
    if (tag.startsWith(tail.slice(-length))) return length;
  return 0;
}
