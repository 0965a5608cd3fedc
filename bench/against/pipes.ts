import { receive, send } from "../exchange.ts";
import { Flight } from "../flight.ts";
import { Peer } from "../peer.ts";
import { warmUp } from "../warmth.ts";
import type { Job, Tell } from "./job.ts";
import { Kin, summarize } from "./kin.ts";

/** Runs a job over stdio. @throws as soon as an answer is not what was asked for; what was told until then holds. */
export async function runOverPipes(job: Job, tell: Tell): Promise<void> {
  const peer = new Peer(job.peer);
  peer.awaitTools((names) => names.includes(job.tool));
  const kin = new Kin(job);
  for (const { flight: width, lines } of job.laps) {
    const flight = new Flight([job.tool], lines, width);
    const turn = (ms: number) => {
      const from = performance.now();
      let now = from;
      for (; now < from + ms; now = receive(peer, flight)) send(peer, flight);
      return (now - from) / 1000;
    };
    await warmUp((ms) => {
      const before = flight.answered;
      const seconds = turn(ms);
      return (flight.answered - before) / seconds;
    }, job.warmUp);
    flight.record();
    const before = kin.weigh();
    const seconds = turn(job.duration);
    const after = kin.weigh();
    const latencies = flight.latencies();
    while (flight.free < width) receive(peer, flight);
    flight.verify();
    tell(summarize(latencies, seconds, before, after));
  }
  await peer.end();
}
