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
import { elicit, type Form, sample } from "./input-tools.ts";
import { say } from "./tools.ts";

/** The progress of a multi-round call, kept in its request state. */
export type Step = string;

/** Tools and a prompt that answer `input_required`, with the names and keys of the scenarios. */
export function registerRounds(server: McpServer, codec: RequestStateCodec<Step>): void {
  const offer = (name: string, tool: ToolCallback): void =>
    void server.registerTool(
      `test_input_required_result_${name}`,
      { description: "Needs more than its arguments." },
      tool,
    );
  offer("elicitation", ({ mcpReq: { inputResponses } }) => {
    const content = acceptedContent<{ name: string }>(inputResponses, "user_name");
    return content === undefined
      ? inputRequired({ inputRequests: { user_name: askFor("name", "What is your name?") } })
      : say(`Hello, ${content.name}!`);
  });
  offer("sampling", ({ mcpReq: { inputResponses } }) => {
    const answer = inputResponse(inputResponses, "capital_question");
    return answer.kind === "sampling"
      ? say(JSON.stringify(answer.result.content))
      : inputRequired({
          inputRequests: { capital_question: sample("What is the capital of France?") },
        });
  });
  offer("list_roots", ({ mcpReq: { inputResponses } }) => {
    const answer = inputResponse(inputResponses, "client_roots");
    return answer.kind === "roots"
      ? say(answer.roots.map(({ uri }) => uri).join("\n"))
      : inputRequired({ inputRequests: { client_roots: inputRequired.listRoots() } });
  });
  offer("request_state", async (context) => {
    if (context.mcpReq.requestState<Step>() === "asked") return say("state-ok");
    const requestState = await codec.mint("asked", context);
    return inputRequired({ inputRequests: { confirm: askFor("ok", "Well?") }, requestState });
  });
  offer("tampered_state", async (context) => {
    if (context.mcpReq.requestState<Step>() === "asked") return say("The state is as it was.");
    const requestState = await codec.mint("asked", context);
    return inputRequired({ inputRequests: { confirm: askFor("ok", "Well?") }, requestState });
  });
  offer("multiple_inputs", async (context) => {
    const { inputResponses, requestState } = context.mcpReq;
    const kinds = ["user_name", "greeting", "client_roots"].map(
      (key) => inputResponse(inputResponses, key).kind,
    );
    if (requestState<Step>() === "asked" && !kinds.includes("missing")) return say(kinds.join());
    return inputRequired({
      inputRequests: {
        user_name: askFor("name", "What is your name?"),
        greeting: sample("Generate a greeting"),
        client_roots: inputRequired.listRoots(),
      },
      requestState: await codec.mint("asked", context),
    });
  });
  offer("multi_round", async (context) => {
    const { inputResponses, requestState } = context.mcpReq;
    const [key, ...known] = requestState<Step>()?.split("\n") ?? [];
    const said = acceptedContent(inputResponses, key ?? "");
    if (key === "step2" && said !== undefined) {
      return say([...known, JSON.stringify(said)].join(" "));
    }
    const next =
      key === "step1" && said !== undefined
        ? { step2: askFor("color", "Step 2: What is your favorite color?") }
        : { step1: askFor("name", "Step 1: What is your name?") };
    const state = "step2" in next ? `step2\n${JSON.stringify(said)}` : "step1";
    return inputRequired({ inputRequests: next, requestState: await codec.mint(state, context) });
  });
  offer("capabilities", ({ mcpReq: { envelope, inputResponses } }) => {
    if (inputResponses !== undefined) return say(Object.keys(inputResponses).join());
    const said: { readonly [CLIENT_CAPABILITIES_META_KEY]?: ClientCapabilities } = envelope ?? {};
    // oxlint-disable-next-line typescript/no-deprecated -- a request of the legacy era does not say it
    const known = server.server.getClientCapabilities();
    const declared = said[CLIENT_CAPABILITIES_META_KEY] ?? known;
    const inputRequests: InputRequests = {
      ...(declared?.sampling !== undefined && { greeting: sample("Generate a greeting") }),
      ...(declared?.elicitation !== undefined && {
        user_name: askFor("name", "What is your name?"),
      }),
    };
    const isNothing = Object.keys(inputRequests).length === 0;
    return isNothing ? say("There is nobody to ask.") : inputRequired({ inputRequests });
  });
  server.registerPrompt(
    "test_input_required_result_prompt",
    { description: "A prompt that asks what it is about." },
    ({ mcpReq: { inputResponses } }) => {
      const content = acceptedContent<{ context: string }>(inputResponses, "user_context");
      if (content === undefined) {
        const user_context = askFor("context", "What context should the prompt use?");
        return inputRequired({ inputRequests: { user_context } });
      }
      const text = `This is about ${content.context}.`;
      return { messages: [{ role: "user", content: { type: "text", text } }] };
    },
  );
}

/** An elicitation of one text. */
function askFor(name: string, message: string) {
  const form: Form = {
    type: "object",
    properties: { [name]: { type: "string" } },
    required: [name],
  };
  return elicit(message, form);
}
