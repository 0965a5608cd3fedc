import {
  acceptedContent,
  type ClientCapabilities,
  CLIENT_CAPABILITIES_META_KEY,
  type InputRequests,
  inputRequired,
  inputResponse,
  type McpServer,
  type RequestStateCodec,
  type ToolCallback,
} from "@modelcontextprotocol/server";
import { formElicitation, type Form, samplingRequest } from "./input-tools.ts";
import { textResult } from "./tools.ts";

/** The progress of a multi-round call, kept in its request state. */
export type Step = string;

/** Tools and a prompt that answer `input_required`, with the names and keys of the scenarios. */
export function registerMultiRoundTools(server: McpServer, codec: RequestStateCodec<Step>): void {
  const register = (name: string, tool: ToolCallback): void =>
    void server.registerTool(
      `test_input_required_result_${name}`,
      { description: "Needs more than its arguments." },
      tool,
    );
  register("elicitation", ({ mcpReq: { inputResponses } }) => {
    const content = acceptedContent<{ name: string }>(inputResponses, "user_name");
    return content === undefined
      ? inputRequired({ inputRequests: { user_name: elicitText("name", "What is your name?") } })
      : textResult(`Hello, ${content.name}!`);
  });
  register("sampling", ({ mcpReq: { inputResponses } }) => {
    const answer = inputResponse(inputResponses, "capital_question");
    return answer.kind === "sampling"
      ? textResult(JSON.stringify(answer.result.content))
      : inputRequired({
          inputRequests: { capital_question: samplingRequest("What is the capital of France?") },
        });
  });
  register("list_roots", ({ mcpReq: { inputResponses } }) => {
    const answer = inputResponse(inputResponses, "client_roots");
    return answer.kind === "roots"
      ? textResult(answer.roots.map(({ uri }) => uri).join("\n"))
      : inputRequired({ inputRequests: { client_roots: inputRequired.listRoots() } });
  });
  register("request_state", async (context) => {
    if (context.mcpReq.requestState<Step>() === "asked") return textResult("state-ok");
    const requestState = await codec.mint("asked", context);
    return inputRequired({ inputRequests: { confirm: elicitText("ok", "Well?") }, requestState });
  });
  register("tampered_state", async (context) => {
    if (context.mcpReq.requestState<Step>() === "asked")
      return textResult("The state is as it was.");
    const requestState = await codec.mint("asked", context);
    return inputRequired({ inputRequests: { confirm: elicitText("ok", "Well?") }, requestState });
  });
  register("multiple_inputs", async (context) => {
    const { inputResponses, requestState } = context.mcpReq;
    const kinds = ["user_name", "greeting", "client_roots"].map(
      (key) => inputResponse(inputResponses, key).kind,
    );
    if (requestState<Step>() === "asked" && !kinds.includes("missing"))
      return textResult(kinds.join());
    return inputRequired({
      inputRequests: {
        user_name: elicitText("name", "What is your name?"),
        greeting: samplingRequest("Generate a greeting"),
        client_roots: inputRequired.listRoots(),
      },
      requestState: await codec.mint("asked", context),
    });
  });
  register("multi_round", async (context) => {
    const { inputResponses, requestState } = context.mcpReq;
    const [key, ...known] = requestState<Step>()?.split("\n") ?? [];
    const answer = acceptedContent(inputResponses, key ?? "");
    if (key === "step2" && answer !== undefined) {
      return textResult([...known, JSON.stringify(answer)].join(" "));
    }
    const next =
      key === "step1" && answer !== undefined
        ? { step2: elicitText("color", "Step 2: What is your favorite color?") }
        : { step1: elicitText("name", "Step 1: What is your name?") };
    const state = "step2" in next ? `step2\n${JSON.stringify(answer)}` : "step1";
    return inputRequired({ inputRequests: next, requestState: await codec.mint(state, context) });
  });
  register("capabilities", ({ mcpReq: { envelope, inputResponses } }) => {
    if (inputResponses !== undefined) return textResult(Object.keys(inputResponses).join());
    const answer: { readonly [CLIENT_CAPABILITIES_META_KEY]?: ClientCapabilities } = envelope ?? {};
    // oxlint-disable-next-line typescript/no-deprecated -- a request of the legacy era does not say it
    const known = server.server.getClientCapabilities();
    const declared = answer[CLIENT_CAPABILITIES_META_KEY] ?? known;
    const inputRequests: InputRequests = {
      ...(declared?.sampling !== undefined && { greeting: samplingRequest("Generate a greeting") }),
      ...(declared?.elicitation !== undefined && {
        user_name: elicitText("name", "What is your name?"),
      }),
    };
    const isNothing = Object.keys(inputRequests).length === 0;
    return isNothing ? textResult("There is nobody to ask.") : inputRequired({ inputRequests });
  });
  server.registerPrompt(
    "test_input_required_result_prompt",
    { description: "A prompt that asks what it is about." },
    ({ mcpReq: { inputResponses } }) => {
      const content = acceptedContent<{ context: string }>(inputResponses, "user_context");
      if (content === undefined) {
        const user_context = elicitText("context", "What context should the prompt use?");
        return inputRequired({ inputRequests: { user_context } });
      }
      const text = `This is about ${content.context}.`;
      return { messages: [{ role: "user", content: { type: "text", text } }] };
    },
  );
}

/** An elicitation of one text. */
function elicitText(name: string, message: string) {
  const form: Form = {
    type: "object",
    properties: { [name]: { type: "string" } },
    required: [name],
  };
  return formElicitation(message, form);
}
