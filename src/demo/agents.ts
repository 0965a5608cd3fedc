/**
 * The model and agent tables for the manifest of `toolmux demo agents`. The agents use the servers clock, text and
 * slow.
 */
export const AGENT_MANIFEST = `
[models.scripted]
provider = "script"
script = "turns.toml"

[agents.planner]
model = "scripted"
instruction = "You plan the day, and give what is to be written to the writer."
tools = { servers = ["clock", "slow"] }
subAgents = ["writer"]

[agents.writer]
model = "scripted"
description = "Writes texts."
instruction = "You write."
tools = { servers = ["text"] }
`;

/** The user's message to the agent `planner`. */
export const AGENT_MESSAGE =
  "What time is it in Tokyo? Then count to three, and write that you have.";

/**
 * The scripted answers of the model. `when` selects an answer by the text of the conversation's last message, `after`
 * by the name of the tool that returned this message.
 */
export const AGENT_TURNS = `
[[turns]]
when = "What time is it in Tokyo?"
thinking = "The clock for the time, the slow server to count."
text = ["I look at the clock, ", "and count."]
pause = "150ms"
toolCalls = [
  { name = "clock__now", arguments = { zone = "Asia/Tokyo" } },
  { name = "slow__count", arguments = { steps = 3, pause = 150 } },
]

[[turns]]
after = "slow__count"
toolCalls = [
  { name = "transfer_task", arguments = { agent = "writer", task = "Write in capital letters: counted to three." } },
]

[[turns]]
when = "Write in capital letters"
toolCalls = [{ name = "text__upper", arguments = { text = "counted to three." } }]

[[turns]]
after = "text__upper"
text = "{message}"

[[turns]]
after = "transfer_task"
text = ["Done. ", "The writer wrote: ", "{message}"]
pause = "100ms"
`;
