import type {
  LanguageModelV4,
  LanguageModelV4CallOptions,
  LanguageModelV4FinishReason,
  LanguageModelV4Message,
  LanguageModelV4StreamPart,
  SharedV4ProviderMetadata,
} from "@ai-sdk/provider";
import { abortable } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import type { Env } from "../base/paths.ts";
import { quotePeer, reasonIn } from "../base/quote.ts";
import { VERSION } from "../base/version.ts";
import type { ModelSpec } from "../manifest/agents.ts";
import { parseTemplate } from "../manifest/interpolate.ts";
import { isTable } from "../manifest/table.ts";
import { makeFetch } from "../transport/http-client/fetch.ts";
import type { Redactor } from "../transport/redact.ts";
import { repairEvents } from "./provider-events.ts";
import {
  type Model,
  type ModelContent,
  modelError,
  type ModelFailure,
  type ModelMessage,
  type ModelPart,
  type ModelRequest,
  type ModelToolCall,
  parseArguments,
} from "./model.ts";

/* Models of providers with an API, through the packages that the AI SDK has for them. docs/decisions/models.md */

/** Providers with an API. */
type ApiProvider = "anthropic" | "openai" | "google";
type ApiModelSpec = ModelSpec & { readonly provider: ApiProvider };

interface Connection {
  /** The base URL of the API; undefined: the provider's own. */
  readonly url: URL | undefined;
  readonly apiKey: string | undefined;
  /** Removes the API key from texts. */
  readonly redactor: Redactor;
  /** The environment variables, which may name proxies and certificates. */
  readonly env: Env;
}

/** The providers' own base URLs. Without a URL, the packages would read one from an environment variable. */
const BASE_URLS: Readonly<Record<ApiProvider, string>> = {
  anthropic: "https://api.anthropic.com/v1",
  openai: "https://api.openai.com/v1",
  google: "https://generativelanguage.googleapis.com/v1beta",
};

/** Makes a model of a provider; loads the provider's package. */
export async function createProviderModel(
  spec: ApiModelSpec,
  connection: Connection,
): Promise<Model> {
  const { name, contextTokens, images } = spec;
  const api = await openApi(spec, connection);
  const takesImages = images ?? connection.url === undefined;
  return {
    name,
    contextTokens,
    takesImages,
    async *stream(request, signal) {
      const options = { ...optionsOf(spec, request, takesImages), abortSignal: signal };
      let reader: ReadableStreamDefaultReader<LanguageModelV4StreamPart> | undefined;
      try {
        const { stream } = await abortable(Promise.resolve(api.doStream(options)), signal);
        reader = stream.getReader();
        yield* readAnswer(spec, reader, signal);
      } catch (error) {
        signal.throwIfAborted();
        throw failureOf(spec, error, connection.redactor);
      } finally {
        // `cancel` also closes the connection if the answer has not ended. An error of `cancel` has no effect on the
        // answer.
        reader?.cancel().catch(() => {});
      }
    },
  };
}

async function openApi(
  { provider, model }: ApiModelSpec,
  { url, apiKey, env }: Connection,
): Promise<LanguageModelV4> {
  const fetchOne = makeFetch({ ca: undefined, env });
  // The packages call `fetch` only with a URL and a body that are strings.
  const send = async (input: string, init: object): Promise<Response> =>
    repairEvents(await fetchOne(input, init), provider);
  const baseURL = url?.href ?? BASE_URLS[provider];
  const fetch = (
    provider === "openai" && url !== undefined ? withoutRefusedMembers(send, url) : send
  ) as typeof globalThis.fetch;
  const settings = { baseURL, fetch, headers: { "user-agent": `toolmux/${VERSION}` } };
  switch (provider) {
    case "anthropic": {
      const { createAnthropic } = await import("@ai-sdk/anthropic");
      // If the key were undefined, the package would read one from an environment variable.
      return createAnthropic({ ...settings, apiKey: apiKey ?? "" })(model);
    }
    case "google": {
      const { createGoogle } = await import("@ai-sdk/google");
      return createGoogle({ ...settings, apiKey: apiKey ?? "" })(model);
    }
    case "openai": {
      const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
      const isOwn = url === undefined;
      return createOpenAICompatible({
        ...settings,
        name: provider,
        includeUsage: true,
        supportsStructuredOutputs: true,
        ...(apiKey !== undefined && { apiKey }),
        ...(isOwn && { transformRequestBody: renameTokenLimit }),
      })(model);
    }
  }
}

/**
 * Renames `max_tokens`, which OpenAI's newer models refuse. Only for OpenAI's own API: compatible APIs know only
 * `max_tokens`.
 */
function renameTokenLimit({ max_tokens: limit, ...body }: Record<string, unknown>): object {
  return limit === undefined ? body : { ...body, max_completion_tokens: limit };
}

/**
 * The members of a request that a compatible API can answer without, so that they are left out where it refuses them.
 * Other members have a meaning that must not get lost.
 */
const OPTIONAL_MEMBERS = [
  "stream_options",
  "reasoning_effort",
  "tool_choice",
  "parallel_tool_calls",
];

/** The optional members that APIs are known to refuse, by host. */
const KNOWN_REFUSALS: Readonly<Record<string, readonly string[]>> = {
  "api.mistral.ai": ["stream_options", "reasoning_effort"],
};

/** The optional members that APIs have refused so far, by base URL. */
const refusedMembers = new Map<string, Set<string>>();

/** Maximum number of base URLs whose refusals are remembered. */
const MAX_REFUSING_APIS = 100;

/**
 * Sends requests to a compatible API without the optional members that it refuses. A request that is refused because of
 * such a member, as the error says, is sent again without it.
 */
function withoutRefusedMembers(
  send: (input: string, init: object) => Promise<Response>,
  { href, hostname }: URL,
): (input: string, init: { readonly body?: unknown }) => Promise<Response> {
  let refused = refusedMembers.get(href);
  if (refused === undefined) {
    if (refusedMembers.size >= MAX_REFUSING_APIS) refusedMembers.clear();
    refused = new Set(KNOWN_REFUSALS[hostname]);
    refusedMembers.set(href, refused);
  }
  const known = refused;
  return async (input, init) => {
    const { body } = init;
    if (typeof body !== "string") return send(input, init);
    for (;;) {
      const all = Object.entries(JSON.parse(body) as object);
      const members = Object.fromEntries(all.filter(([name]) => !known.has(name)));
      const response = await send(input, { ...init, body: JSON.stringify(members) });
      if (response.status !== 400 && response.status !== 422) return response;
      const text = await response.text();
      const sent = OPTIONAL_MEMBERS.filter((name) => Object.hasOwn(members, name));
      const named = sent.filter((name) => text.includes(name));
      // The status 422 is used for members that are not known. If the error names none, `stream_options` is the one
      // that most of these APIs do not know.
      const first = response.status === 422 ? sent.slice(0, 1) : [];
      const found = named.length > 0 ? named : first;
      if (found.length === 0) {
        const { status, statusText, headers } = response;
        return new Response(text, { status, statusText, headers });
      }
      for (const name of found) known.add(name);
    }
  };
}

/** The options that exist only in one provider's package. */
function providerOptionsOf(
  { provider, thinking = "off" }: ApiModelSpec,
  output: ModelRequest["output"],
): Pick<LanguageModelV4CallOptions, "providerOptions"> {
  if (provider === "openai" && output !== undefined)
    return { providerOptions: { openai: { strictJsonSchema: output.strict } } };
  // With `toolStreaming`, the arguments of a call may be cut off, and APIs that imitate Anthropic's do not support it.
  if (provider === "anthropic") return { providerOptions: { anthropic: { toolStreaming: false } } };
  if (provider !== "google" || thinking === "off") return {};
  return { providerOptions: { google: { thinkingConfig: { includeThoughts: true } } } };
}

/** Lets models of Anthropic that do not always do so think between calls of tools. */
const INTERLEAVED = { headers: { "anthropic-beta": "interleaved-thinking-2025-05-14" } };

function optionsOf(
  spec: ApiModelSpec,
  request: ModelRequest,
  takesImages: boolean,
): LanguageModelV4CallOptions {
  const { temperature, maxTokens, topP, frequencyPenalty, presencePenalty } = spec;
  const { output } = request;
  const thinking = mayThink(spec, request.messages) ? spec.thinking : undefined;
  return {
    ...providerOptionsOf(spec, output),
    prompt: promptOf(spec, request, takesImages),
    ...(spec.provider === "anthropic" && spec.interleavedThinking === true && INTERLEAVED),
    ...(request.tools.length > 0 && {
      tools: request.tools.map(({ name, description, inputSchema }) => ({
        type: "function",
        name,
        description,
        inputSchema: rootSchemaOf(inputSchema),
      })),
    }),
    ...(output && {
      responseFormat: {
        type: "json" as const,
        schema: rootSchemaOf(output.schema),
        name: output.name,
        ...(output.description !== undefined && { description: output.description }),
      },
    }),
    ...(temperature !== undefined && { temperature }),
    ...(topP !== undefined && { topP }),
    ...(frequencyPenalty !== undefined && { frequencyPenalty }),
    ...(presencePenalty !== undefined && { presencePenalty }),
    ...(maxTokens !== undefined && { maxOutputTokens: maxTokens }),
    ...(thinking !== undefined && { reasoning: thinking === "off" ? "none" : thinking }),
  };
}

/**
 * Whether thinking may be requested. Anthropic refuses a request for thinking if it follows the results of tool calls
 * that were made without signed thinking, for example by another model that handed over its conversation. The calls of
 * this model are kept with their signatures.
 */
function mayThink(spec: ApiModelSpec, messages: readonly ModelMessage[]): boolean {
  if (spec.provider !== "anthropic" || spec.thinking === "off") return true;
  if (messages.at(-1)?.role !== "tool") return true;
  const last = messages.findLast((message) => message.role === "assistant");
  return last !== undefined && keptOf(spec, last) !== undefined;
}

/**
 * Makes a schema that APIs accept: they refuse the whole request if the root of one tool's schema is not of type
 * object, or has `oneOf`, `anyOf` or `allOf`.
 */
function rootSchemaOf({
  oneOf: _oneOf,
  anyOf: _anyOf,
  allOf: _allOf,
  ...schema
}: Readonly<Record<string, unknown>>): object {
  return { ...schema, type: "object" };
}

/** Marks the end of the part of the prompt that Anthropic is to cache. Other providers choose this part themselves. */
const CACHED = { anthropic: { cacheControl: { type: "ephemeral" } } } as const;

function promptOf(
  spec: ApiModelSpec,
  { instruction, messages }: ModelRequest,
  takesImages: boolean,
): LanguageModelV4Message[] {
  const prompt: LanguageModelV4Message[] = [];
  if (instruction !== "") prompt.push({ role: "system", content: instruction.toWellFormed() });
  for (let at = 0; at < messages.length; at++) {
    const message = messages[at];
    if (message?.role === "user") {
      prompt.push({ role: "user", content: partsOfContent(message.content, takesImages) });
    } else if (message?.role === "assistant") {
      const content = assistantContent(spec, message);
      if (content.length > 0) prompt.push({ role: "assistant", content });
    } else if (message?.role === "tool") {
      // The results of all calls of one answer belong in one message.
      const results = [message];
      for (let next = messages[at + 1]; next?.role === "tool"; next = messages[at + 1]) {
        results.push(next);
        at++;
      }
      prompt.push(...resultMessages(spec, results, takesImages));
    }
  }
  const last = prompt.at(-1);
  if (spec.provider === "anthropic") {
    for (const one of new Set([prompt[0], last])) if (one) one.providerOptions = CACHED;
  }
  return prompt;
}

type Content<Role> = Extract<LanguageModelV4Message, { role: Role; content: unknown }>["content"];

function partsOfContent(content: readonly ModelContent[], takesImages: boolean): Content<"user"> {
  const parts = content.flatMap((one): Content<"user"> => {
    // APIs refuse empty texts.
    if (one.type === "text")
      return one.text === "" ? [] : [{ type: "text", text: one.text.toWellFormed() }];
    return [takesImages ? pictureOf(one) : { type: "text", text: NO_PICTURE }];
  });
  return parts.length > 0 ? parts : [{ type: "text", text: "(empty)" }];
}

const NO_PICTURE = "[picture left out: this model takes none]";

function pictureOf({ mimeType, data }: Extract<ModelContent, { type: "image" }>) {
  return { type: "file", mediaType: mimeType, data: { type: "data", data } } as const;
}

/** The parts of an answer that the provider gets back unchanged: with their signatures, in their order. */
interface KeptAnswer {
  readonly provider: ApiProvider;
  readonly model: string;
  readonly content: readonly KeptPart[];
}

type KeptPart = (
  { type: "text" | "reasoning"; text: string } | ({ type: "toolCall" } & ModelToolCall)
) & { providerOptions?: SharedV4ProviderMetadata };

function assistantContent(
  spec: ApiModelSpec,
  message: Extract<ModelMessage, { role: "assistant" }>,
): Content<"assistant"> {
  const { text, toolCalls } = message;
  const content: readonly KeptPart[] = keptOf(spec, message)?.content ?? [
    ...(text === "" ? [] : [{ type: "text" as const, text: text.toWellFormed() }]),
    ...toolCalls.map((call) => ({ type: "toolCall" as const, ...call })),
  ];
  return content.map((part) => {
    const extra = part.providerOptions && { providerOptions: part.providerOptions };
    if (part.type !== "toolCall") return { type: part.type, text: part.text, ...extra };
    const { id, name, argumentsJson } = part;
    const input = parseArguments(argumentsJson);
    return { type: "tool-call", toolCallId: id, toolName: toolNameOf(name), input, ...extra };
  });
}

/**
 * The kept parts of an answer; undefined if another model gave the answer, or if its text or calls have changed since.
 */
function keptOf(
  { provider, model }: ApiModelSpec,
  { text, toolCalls, providerState: state }: Extract<ModelMessage, { role: "assistant" }>,
): KeptAnswer | undefined {
  if (!isTable(state) || state["provider"] !== provider || state["model"] !== model)
    return undefined;
  if (!Array.isArray(state["content"])) return undefined;
  const kept = state as unknown as KeptAnswer;
  const calls = kept.content.flatMap((part) => (part.type === "toolCall" ? [part.id] : []));
  const said = kept.content.map((part) => (part.type === "text" ? part.text : "")).join("");
  const isSame = said === text && calls.join() === toolCalls.map(({ id }) => id).join();
  return isSame ? kept : undefined;
}

/**
 * The name of a called tool as APIs accept it: models make up names, and APIs refuse a conversation with an invalid
 * name.
 */
function toolNameOf(name: string): string {
  return name.replaceAll(/[^\w-]/g, "_").slice(0, 64) || "_";
}

function resultMessages(
  { provider }: ApiModelSpec,
  results: readonly Extract<ModelMessage, { role: "tool" }>[],
  takesImages: boolean,
): LanguageModelV4Message[] {
  // In OpenAI's API, the result of a call is a text, so pictures follow in a message of the user.
  const takesPictures = takesImages && provider !== "openai";
  const pictures: Content<"user"> = [];
  const content = results.map(({ toolCallId, toolName, content: blocks, isError }) => {
    const images = blocks.filter((block) => block.type === "image");
    const texts = blocks.flatMap((block) =>
      block.type === "text" ? [block.text] : takesImages ? [] : [NO_PICTURE],
    );
    const value = texts.join("\n\n").toWellFormed();
    const result = { type: "tool-result", toolCallId, toolName: toolNameOf(toolName) } as const;
    if (images.length > 0 && takesPictures) {
      const parts = value === "" ? [] : [{ type: "text" as const, text: value }];
      return {
        ...result,
        output: { type: "content" as const, value: [...parts, ...images.map(pictureOf)] },
      };
    }
    if (images.length > 0 && takesImages) {
      const note = { type: "text", text: `Pictures of the result of ${toolName}:` } as const;
      pictures.push(note, ...images.map(pictureOf));
    }
    return { ...result, output: { type: isError ? "error-text" : "text", value } as const };
  });
  const message = { role: "tool", content } as const;
  return pictures.length === 0 ? [message] : [message, { role: "user", content: pictures }];
}

async function* readAnswer(
  spec: ApiModelSpec,
  reader: ReadableStreamDefaultReader<LanguageModelV4StreamPart>,
  signal: AbortSignal,
): AsyncGenerator<ModelPart> {
  const kept = new Map<string, KeptPart>();
  let hasCalls = false;
  for (;;) {
    const { done, value: part } = await abortable(reader.read(), signal);
    if (done) throw cutOff(spec);
    switch (part.type) {
      case "text-start":
      case "text-delta":
      case "text-end":
      case "reasoning-start":
      case "reasoning-delta":
      case "reasoning-end": {
        const text = "delta" in part ? part.delta : "";
        const isText = part.type.startsWith("text");
        keep(kept, isText ? "text" : "reasoning", part.id, text, part.providerMetadata);
        if (text !== "") yield { type: isText ? "text" : "thinking", text };
        break;
      }
      case "tool-call": {
        hasCalls = true;
        const { toolCallId: id, toolName: name, input: argumentsJson } = part;
        const call = { type: "toolCall", id, name, argumentsJson } as const;
        const { providerMetadata: providerOptions } = part;
        kept.set(`call ${id}`, { ...call, ...(providerOptions && { providerOptions }) });
        yield call;
        break;
      }
      case "error":
        throw part.error;
      case "finish": {
        const reason = finishOf(spec, part.finishReason, hasCalls, part.providerMetadata);
        const { inputTokens, outputTokens } = part.usage;
        const usage = { inputTokens: inputTokens.total, outputTokens: outputTokens.total };
        const { provider, model } = spec;
        const content = [...kept.values()];
        const needsState =
          provider === "anthropic" ||
          content.some((one) => one.type === "reasoning" || one.providerOptions);
        const providerState: KeptAnswer | undefined = needsState
          ? { provider, model, content }
          : undefined;
        yield { type: "finish", reason, usage, ...(providerState && { providerState }) };
        return;
      }
      default:
      // All other kinds of parts belong to features that are not used, such as files and sources.
    }
  }
}

/** Appends a streamed part to its block of text or thinking. Any part may bring the provider's signature of the block. */
function keep(
  kept: Map<string, KeptPart>,
  type: "text" | "reasoning",
  id: string,
  delta: string,
  metadata: SharedV4ProviderMetadata | undefined,
): void {
  const key = `${type} ${id}`;
  const known = kept.get(key);
  const block = known?.type === type ? known : { type, text: "" };
  block.text += delta;
  for (const [provider, values] of Object.entries(metadata ?? {})) {
    const before = block.providerOptions?.[provider];
    block.providerOptions = { ...block.providerOptions, [provider]: { ...before, ...values } };
  }
  if (known !== block) kept.set(key, block);
}

function finishOf(
  spec: ApiModelSpec,
  { unified, raw }: LanguageModelV4FinishReason,
  hasCalls: boolean,
  metadata: SharedV4ProviderMetadata | undefined,
): Extract<ModelPart, { type: "finish" }>["reason"] {
  switch (unified) {
    case "length":
      return "length";
    case "content-filter":
      return "refused";
    case "error":
      throw answerError(spec, `it ended its answer with ${raw ?? "an error"}`);
    case "interrupted":
      throw cutOff(spec);
    case "other":
      // If Google refuses the prompt itself, the response has `promptFeedback` instead of a finish reason.
      if (isTable(metadata?.["google"]?.["promptFeedback"])) return "refused";
      if (raw === undefined) throw cutOff(spec);
      // Google has one reason for an answer that is whole, and tells all others apart. Compatible APIs have many words.
      if (spec.provider === "google")
        throw answerError(spec, `it ended its answer with ${quotePeer(raw)}`);
      break;
    case "stop":
    case "tool-calls":
  }
  // Some compatible APIs give the reason "stop" even if the answer has calls.
  return hasCalls ? "toolCalls" : "stop";
}

function cutOff(spec: ApiModelSpec): HubError {
  return answerError(spec, "its answer stopped in the middle");
}

function answerError(spec: ApiModelSpec, text: string): HubError {
  return modelError(`${labelOf(spec)} failed: ${text}.`, { reason: "badAnswer" });
}

function labelOf({ name, provider, model }: ApiModelSpec): string {
  return name === `${provider}/${model}`
    ? `Model "${name}"`
    : `Model "${name}" (${provider}/${model})`;
}

/** An error that the packages throw or report in a stream, with the members that it may have. */
interface ProviderError {
  readonly message: unknown;
  readonly statusCode: unknown;
  readonly responseHeaders: unknown;
  readonly responseBody: unknown;
  readonly code: unknown;
  readonly type: unknown;
}

/**
 * The error for a failed request. It contains neither the request nor the whole response: only the provider's
 * message, redacted and shortened.
 */
function failureOf(spec: ApiModelSpec, thrown: unknown, redactor: Redactor): HubError {
  const cause = thrown instanceof Error && !(thrown instanceof HubError) ? thrown.cause : undefined;
  if (cause instanceof HubError) return failureOf(spec, cause, redactor);
  if (thrown instanceof HubError) {
    if (thrown.code === "modelFailed") return thrown;
    const reason = thrown.code === "messageTooLarge" ? "badAnswer" : "unreachable";
    return modelError(redactor.apply(`${labelOf(spec)} failed: ${thrown.message}`), { reason });
  }
  const error = (typeof thrown === "object" && thrown !== null ? thrown : {}) as ProviderError;
  const status = typeof error.statusCode === "number" ? error.statusCode : statusOf(error);
  const isRefusal = status !== undefined && status >= 300;
  // The message of this error is not used, because the packages quote the provider's answer in it.
  if (!isRefusal && thrown instanceof Error) {
    const member = invalidMemberOf(thrown);
    return answerError(
      spec,
      `its answer is not valid${member === undefined ? "" : ` (${member})`}`,
    );
  }
  const said = reasonOfProvider(thrown, error) ?? "";
  const detail = quotePeer(said, redactor);
  const parts = [...(isRefusal ? [`HTTP ${status}`] : []), ...(detail === "" ? [] : [detail])];
  const text = `${labelOf(spec)} failed: ${parts.join(": ") || "it gave no reason"}.`;
  if (!isRefusal) return modelError(text, { reason: "badAnswer" });
  const reason = reasonOf(status, said, error.responseBody);
  return modelError(
    text,
    { reason, status, retryAfter: retryAfterOf(error) },
    hintOf(spec, reason),
  );
}

/** What a provider said: the text for people in the body of its error, the whole body if it is text, or the status text. */
function reasonOfProvider(
  thrown: unknown,
  { message, responseBody }: ProviderError,
): string | undefined {
  if (typeof responseBody === "string" && responseBody.trim() !== "") {
    try {
      const reason = reasonIn(JSON.parse(responseBody));
      if (reason !== undefined) return reason;
    } catch {
      // A page for browsers says nothing that a person could read here.
      if (!responseBody.trimStart().startsWith("<")) return responseBody;
    }
  }
  return typeof message === "string" && message !== "" ? message : reasonIn(thrown);
}

/** The path of the member that makes an answer invalid, such as `choices.0.delta`; undefined if that is not known. */
function invalidMemberOf(error: Error): string | undefined {
  for (let cause: unknown = error, depth = 0; depth < 4; depth++) {
    if (typeof cause !== "object" || cause === null) return undefined;
    const issues = "issues" in cause ? cause.issues : undefined;
    const [first] = Array.isArray(issues) ? (issues as unknown[]) : [];
    if (isTable(first) && Array.isArray(first["path"])) {
      const path = first["path"].map(String).join(".");
      return path === "" ? undefined : `at ${quotePeer(path)}`;
    }
    cause = "cause" in cause ? cause.cause : undefined;
  }
  return undefined;
}

/** The HTTP status that corresponds to an error in the middle of a stream. */
function statusOf({ code, type }: ProviderError): number | undefined {
  if (typeof code === "number") return code;
  const kind = `${typeof type === "string" ? type : ""} ${typeof code === "string" ? code : ""}`;
  if (/rate_limit/.test(kind)) return 429;
  if (/context_length/.test(kind)) return 400;
  if (/timeout_error/.test(kind)) return 504;
  return /overloaded|server_error/.test(kind) ? 503 : undefined;
}

/**
 * Recognizes the message of the error for a prompt that is too long: providers have no common code for this error, and
 * some have no code at all.
 */
const TOO_LONG =
  /prompt is too long|context.?(?:length|window|size|limit)|maximum context|input token count|too many (?:input )?tokens|exceeds the (?:available|model's) context/i;

function reasonOf(status: number, text: string, body: unknown): ModelFailure["reason"] {
  // Google answers 400 to a wrong key.
  const isKeyWrong = typeof body === "string" && body.includes('"API_KEY_INVALID"');
  if (status === 401 || status === 403 || isKeyWrong) return "unauthorized";
  if (status === 429) return "rateLimit";
  if (status >= 500 || status === 408 || status === 409) return "overloaded";
  const isTooLong = status === 413 || (status === 400 && TOO_LONG.test(text));
  return isTooLong ? "contextTooLong" : "badRequest";
}

/** The wait in ms from the headers Retry-After (seconds or a date) and retry-after-ms, or from the body (Google). */
function retryAfterOf({ responseHeaders, responseBody }: ProviderError): number | undefined {
  const headers = isTable(responseHeaders) ? responseHeaders : {};
  const exact = Number(headers["retry-after-ms"] ?? NaN);
  if (exact >= 0) return exact;
  const text = headers["retry-after"];
  if (typeof text === "string") {
    const seconds = Number(text);
    const ms = Number.isNaN(seconds) ? Date.parse(text) - Date.now() : seconds * 1000;
    if (Number.isFinite(ms)) return Math.max(0, Math.round(ms));
  }
  if (typeof responseBody !== "string") return undefined;
  const [, delay] = /"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"/.exec(responseBody) ?? [];
  return delay === undefined ? undefined : Math.round(Number(delay) * 1000);
}

function hintOf(
  { provider, apiKey, name }: ApiModelSpec,
  reason: ModelFailure["reason"],
): string | undefined {
  if (reason !== "unauthorized") return undefined;
  const parts = apiKey === undefined ? [] : parseTemplate(apiKey, "toolmux");
  const secret = parts.find((part) => part.kind === "scheme" && part.scheme === "secret");
  if (apiKey !== undefined && secret?.kind !== "scheme") return `Correct apiKey of models.${name}.`;
  const secretName = secret?.kind === "scheme" ? secret.path : provider;
  return `Set the right key: toolmux secret set ${secretName}`;
}
