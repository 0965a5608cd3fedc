/**
 * Does the one job that its argument is, as JSON, and prints the figures of each lap, a line of JSON each. A process
 * by itself, so that it can block and be killed.
 */
import process from "node:process";
import { runOverHttp } from "./http.ts";
import type { Job, Tell } from "./job.ts";
import { runOverPipes } from "./pipes.ts";

const tell: Tell = (figures) => console.log(JSON.stringify(figures));
try {
  const job = JSON.parse(process.argv[2] ?? "") as Job;
  const { face } = job;
  await (face.kind === "stdio" ? runOverPipes(job, tell) : runOverHttp(job, face, tell));
  process.exit(0);
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exit(1);
}
