// What a card says when its kernel is gone: what happened, up to when its transcript goes, and how to go on.

/** Where the session is known from: its name, and the folder that keeps it, if one does. */
export interface Origin {
  readonly name: string;
  readonly folder: string;
}

/** `at`: when the last message came, if something was going on; how it ended is then not known. */
export function farewell(how: string, at: Date | undefined, { name, folder }: Origin): string {
  const open = (path: string): string => `Session.open(${JSON.stringify(path)}, agent)`;
  const until = at ? ` up to ${at.toLocaleTimeString()}` : "";
  const shown = `${how} What you see is the transcript${until}.`;
  if (folder !== "") {
    return `${shown} Its session is stored: ${open(folder)} loads it, and chat(agent) goes on.`;
  }
  const advice = `to keep the next one, call ${open(`${name || "my"}.session`)} before its first run.`;
  return at ? `${shown} Its session was not stored and is lost with the kernel; ${advice}` : shown;
}
