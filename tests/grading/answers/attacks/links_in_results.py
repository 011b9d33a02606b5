# attack on 05.6: links to files outside lie where the results should be
import os

for name in ("run.msgpack", "trace.pickle", "case0.returned0.bin", "case0.returned1.bin", "run.part"):
    os.makedirs("results/05.6", exist_ok=True)
    os.symlink({CANARY}, f"results/05.6/{name}")

{SOLUTION}
