// Whether what a person pressed has taken effect: then its button is let go.

import type { Asked } from "./asked";
import type { ToolCallBlock, Transcript } from "./events";
import type { RunView } from "./link";
import { waitingCalls } from "./transcript";

export const ENDED: readonly string[] = ["completed", "interrupted", "exceed_max_iters", "error"];

/** Whether the sub-agent that works for one of these calls has not ended. */
function works({ children }: Transcript, call_ids: readonly string[]): boolean {
  return children.some(({ call_id, transcript }) => {
    return (call_ids.includes(call_id) && transcript.message.finished_reason === undefined) || works(transcript, call_ids);
  });
}

/** Whether the run, as it is known now, shows what was pressed. `grew`: the card has got a new run. */
export function hasHappened({ id, what, about }: Asked, { status, transcript }: RunView, grew: boolean): boolean {
  const { content } = transcript.message;
  const over = ENDED.includes(status.state);
  const waits = (state: ToolCallBlock["state"]): boolean => {
    return waitingCalls(transcript).some((call) => call.state === state && about.includes(call.id));
  };
  switch (what) {
    case "stop": // the kernel knows: what is still shown comes from there
      return over || status.state === "stopping" || (about.length > 0 && !works(transcript, about));
    case "resume":
      return !over || grew;
    case "steer":
      return over || [...(status.steering ?? []), ...content].some((one) => one.id === id);
    case "withdraw":
      return over || !status.steering?.some((note) => about.includes(note.id));
    case "answer":
      return over || !waits("submitted");
    default:
      return over || !waits("asking");
  }
}
