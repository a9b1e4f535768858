// Answers can come in another order than they were asked for: only the answer to the newest question counts.

export class Turns {
  private newest = 0;

  // Ask: returns whether, by the time of the answer, nobody has asked anew.
  take(): () => boolean {
    const mine = ++this.newest;
    return () => mine === this.newest;
  }
}

// Do one thing at a time. Whoever asks while it is being done has it done once more, as an answer on its way may be older than the question.
export function oneAtATime(act: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | null = null, again = false;
  const run = async (): Promise<void> => {
    try {
      do { again = false; await act(); } while (again);
    } finally {
      running = null;
    }
  };
  return () => {
    if (running) again = true;
    return running ??= run();
  };
}
