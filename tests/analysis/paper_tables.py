"""Tables of the paper that several tests compare with."""

LLAMA, QWEN, MISTRAL, LOGIQA, RECLOR = "Llama", "Qwen", "Mistral", "LogiQA", "ReClor"

# Table "Logic Scope Matrix": K, (G, S, U), p_S, κ_S, κ_U, ρ_G and net gain.
SCOPE = [
    (4, (770, 306, 496), 19.47, 47.17, 20.50, 8.23, 11.62),
    (8, (770, 416, 386), 26.46, 50.72, 16.93, 6.88, 14.21),
    (4, (1050, 28, 494), 1.78, 51.19, 8.37, 2.79, 1.68),
    (8, (1050, 37, 485), 2.35, 54.95, 7.56, 2.73, 1.80),
    (4, (277, 96, 127), 19.20, 46.88, 38.58, 6.38, 15.27),
    (8, (277, 130, 93), 26.00, 55.64, 38.71, 8.66, 16.87),
    (4, (361, 7, 132), 1.40, 71.43, 4.04, 1.20, 1.20),
    (8, (361, 11, 128), 2.20, 57.58, 3.65, 1.11, 1.40),
]

# Table "Source Pass@K Reached by One Decode": Pass@4, Pass@8, then K_eq of the four conditions.
AMORTIZATION = {
    (LLAMA, LOGIQA): (68.40, 76.81, ("1", "2", "2", "3")),
    (LLAMA, RECLOR): (73.32, 81.40, ("1", "2", "3", "4")),
    (QWEN, LOGIQA): (70.17, 70.67, ("<1", "<1", "1", "3")),
    (QWEN, RECLOR): (73.69, 74.40, ("<1", "<1", "1", "2")),
    (MISTRAL, LOGIQA): (52.53, 54.94, ("1", "1", "3", "4")),
    (MISTRAL, RECLOR): (53.78, 55.60, ("3", "2", "4", "8")),
}
