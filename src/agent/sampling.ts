import { HubError } from "../base/errors.ts";
import type { ModelSpec } from "../manifest/agents.ts";
import { isTable } from "../manifest/table.ts";
import {
  type Model,
  type ModelContent,
  modelError,
  type ModelMessage,
  type ModelPart,
  type ModelRequest,
  parseArguments,
  type SamplingClient,
} from "./model.ts";

/* The model of the connected client, by sampling (MCP 2025-11-25, client/sampling). */

/** Maximum number of requests to a client's model in one run: a person may have to confirm each of them. */
const MAX_TURNS = 10;
/** Sampling requires a limit of tokens; this one is used if the model sets none. */
const MAX_TOKENS = 8192;

export function createSamplingModel(spec: ModelSpec): Model {
  const { name, contextTokens, images = true } = spec;
  return {
    name,
    contextTokens,
    takesImages: images,
    maxTurns: MAX_TURNS,
    async *stream(request, signal) {
      const { client } = request;
      if (client?.takesTools !== true) throw cannotSample(name, client);
      let result: unknown;
      try {
        result = await client.createMessage(paramsOf(spec, request), signal);
      } catch (error) {
        signal.throwIfAborted();
        // `invalidParams` means that the client's answer is invalid, which counts as a failure of the model.
        if (error instanceof HubError && error.code !== "invalidParams") throw error;
        const reason = error instanceof Error ? error.message : String(error);
        const text = `The client's model (model "${name}") did not answer: ${reason.slice(0, 400)}`;
        throw modelError(text, { reason: "badRequest" });
      }
      yield* partsOf(name, result);
    },
  };
}

function cannotSample(name: string, client: SamplingClient | undefined): HubError {
  const reason =
    client === undefined
      ? "no MCP client has called the agent"
      : "the client that has called the agent does not declare sampling.tools";
  return modelError(
    `Model "${name}" is the model of the client, but ${reason}.`,
    { reason: "badRequest" },
    `Call the agent from a client that declares sampling.tools, or give it a model with another provider ([models.${name}]).`,
  );
}

function paramsOf(
  { model, maxTokens = MAX_TOKENS, temperature }: ModelSpec,
  { instruction, messages, tools }: ModelRequest,
): Record<string, unknown> {
  return {
    messages: messagesOf(messages),
    ...(instruction !== "" && { systemPrompt: instruction }),
    ...(model !== "" && { modelPreferences: { hints: [{ name: model }] } }),
    ...(temperature !== undefined && { temperature }),
    maxTokens,
    ...(tools.length > 0 && { tools, toolChoice: { mode: "auto" } }),
  };
}

/**
 * Converts messages. The results of all calls of one answer must be in one message, which must contain nothing else.
 */
function messagesOf(messages: readonly ModelMessage[]): readonly object[] {
  const sent: { readonly role: "user" | "assistant"; readonly content: object[] }[] = [];
  let results: object[] | undefined;
  for (const message of messages) {
    if (message.role === "tool") {
      const { toolCallId: toolUseId, content, isError } = message;
      if (results === undefined) sent.push({ role: "user", content: (results = []) });
      results.push({ type: "tool_result", toolUseId, content: content.map(blockOf), isError });
      continue;
    }
    results = undefined;
    const content =
      message.role === "user"
        ? message.content.map(blockOf)
        : [
            ...(message.text === "" ? [] : [{ type: "text", text: message.text }]),
            ...message.toolCalls.map(({ id, name, argumentsJson }) => ({
              type: "tool_use",
              id,
              name,
              input: parseArguments(argumentsJson),
            })),
          ];
    if (content.length > 0) sent.push({ role: message.role, content });
  }
  return sent;
}

function blockOf(content: ModelContent): object {
  return content;
}

function* partsOf(name: string, result: unknown): Generator<ModelPart> {
  const invalid = (): HubError =>
    modelError(`The client's model (model "${name}") gave an answer that is not valid.`, {
      reason: "badAnswer",
    });
  if (!isTable(result)) throw invalid();
  const { content, stopReason } = result;
  const blocks: readonly unknown[] = Array.isArray(content) ? content : [content];
  let hasCalls = false;
  for (const block of blocks) {
    if (!isTable(block)) throw invalid();
    if (block["type"] === "text" && typeof block["text"] === "string") {
      if (block["text"] !== "") yield { type: "text", text: block["text"] };
    } else if (block["type"] === "tool_use") {
      const { id, name: tool, input = {} } = block;
      if (typeof id !== "string" || typeof tool !== "string") throw invalid();
      hasCalls = true;
      yield { type: "toolCall", id, name: tool, argumentsJson: JSON.stringify(input) };
    }
  }
  const reason = hasCalls ? "toolCalls" : stopReason === "maxTokens" ? "length" : "stop";
  yield { type: "finish", reason, usage: {} };
}
