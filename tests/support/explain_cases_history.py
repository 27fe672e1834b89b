"""More conversations with a known break: those in which blocks or whole messages move."""

from __future__ import annotations

from explain_cases import (
    A1,
    A2,
    A3,
    DOC,
    LONG,
    Q1,
    Q2,
    Q3,
    Q4,
    SYS,
    Case,
    answer,
    chat,
    said,
    system,
    tool,
    tool_text,
    user,
)
from request_timing.explain.kinds import (
    COMPACTION,
    CUT,
    EDITED,
    FORM,
    INSERTED,
    MODEL,
    SYSTEM,
    THINKING,
    TIME,
    UNKNOWN,
)

MEMORY = "Relevant memories:\n- The user sails a small boat.\n- The user likes oranges.\n\n"
OTHER = "Relevant memories:\n- The user has a sister.\n- Her letters are in a drawer at home.\n\n"
SUMMARY = user("Summary of the conversation so far: oranges, a chart.")
THOUGHT = "<think>\nThe crate, Monday: oranges.\n</think>\n\n"
PLAIN = [f"User: {q['content']}\nAssistant: {a['content']}\n"
         for q, a in ((Q1, A1), (Q2, A2), (Q3, A3))]

BLOCKS = [
    Case(name="memory in front of the system prompt", kind=INSERTED, place="messages[0].content",
         before=chat(system(DOC), Q1), after=chat(system(MEMORY + DOC), Q1, A1, Q2),
         shared="<|system|>\n"),
    Case(name="other memories", kind=INSERTED, place="messages[0].content",
         before=chat(system(MEMORY + DOC), Q1), after=chat(system(OTHER + DOC), Q1, A1, Q2),
         shared="<|system|>\nRelevant memories:\n- The user "),
    Case(name="retrieved text in a plain prompt", kind=INSERTED, place="prompt",
         before=f"Answer well.\n\n{MEMORY}{LONG}Q: a", after=f"Answer well.\n\n{OTHER}{LONG}Q: a",
         shared="Answer well.\n\nRelevant memories:\n- The user "),
    Case(name="a memory message", kind=INSERTED, place="messages[1].role",
         before=chat(SYS, Q1), after=chat(SYS, system(MEMORY), Q1, A1, Q2),
         shared=said(SYS) + "<|"),
    Case(name="a block in front of a plain prompt", kind=INSERTED, place="prompt",
         before=LONG, after="Notes: the keeper is old and wise.\n" + LONG, shared=""),
]

WINDOWS = [
    Case(name="sliding window", kind=CUT, place="messages[1].content",
         detail="2 messages cut off in front of what stays",
         before=chat(SYS, Q1, A1, Q2, A2, Q3), after=chat(SYS, Q2, A2, Q3, A3, Q4),
         shared=said(SYS) + "<|user|>\n"),
    Case(name="a window behind the first request", kind=CUT, place="messages[3].content",
         before=chat(SYS, Q1, A1, Q2, A2, Q3), after=chat(SYS, Q1, A1, Q3, A3, Q4),
         shared=said(SYS, Q1, A1) + "<|user|>\n"),
    Case(name="a window over a plain prompt", kind=CUT, place="prompt",
         before="".join(PLAIN), after="".join(PLAIN[1:]) + "User: more?\n", shared="User: "),
    Case(name="a window over text without roles", kind=CUT, place="prompt",
         before=f"Log:\n{'early words of the log ' * 4}\n{LONG}", after=f"Log:\n{LONG}and more",
         shared="Log:\n"),
    Case(name="a pruned tool result", kind=CUT, place="messages[1].content",
         detail="an earlier tool result is pruned",
         before=chat(Q1, {"role": "tool", "content": LONG}, A1, Q2),
         after=chat(Q1, {"role": "tool", "content": "[cleared]"}, A1, Q2, A2, Q3),
         shared=said(Q1) + "<|tool|>\n"),
    Case(name="compaction", kind=COMPACTION, place="messages[1].content",
         before=chat(SYS, Q1, A1, Q2, A2, Q3, A3, Q4), after=chat(SYS, SUMMARY, A3, Q4),
         shared=said(SYS) + "<|user|>\n"),
    Case(name="compaction of everything", kind=COMPACTION, place="messages[1].content",
         before=chat(SYS, Q1, A1, Q2, A2, Q3, A3, Q4),
         after=chat(SYS, SUMMARY, user("Go on, please.")), shared=said(SYS) + "<|user|>\n"),
    Case(name="compaction of a plain prompt", kind=COMPACTION, place="prompt",
         before=f"Head.\n{LONG}{'some middle part, which is long. ' * 8}\nNow: go on with it!",
         after=f"Head.\nSummary: {'a keeper, a chart' * 2}.\nNow: go on with it!",
         shared="Head.\n"),
]

THOUGHTS = [
    Case(name="thinking stripped", kind=THINKING, place="messages[1].content",
         before=chat(Q1, answer(THOUGHT + A1["content"]), Q2),
         after=chat(Q1, A1, Q2, A2, Q3), shared=said(Q1) + "<|assistant|>\n"),
    Case(name="reasoning_content stripped", kind=THINKING, place="messages[1].content",
         before=chat(Q1, answer(A1["content"], reasoning_content="Monday: oranges."), Q2),
         after=chat(Q1, A1, Q2, A2, Q3), shared=said(Q1) + "<|assistant|>\n"),
    Case(name="thinking blocks of Anthropic", kind=THINKING, place="messages[1].content[0].text",
         before={"system": "s", "messages": [Q1, answer([{"type": "thinking", "thinking": "Hm."},  # type: ignore[arg-type]
                                                {"type": "text", "text": A1["content"]}]), Q2]},
         after={"system": "s", "messages": [Q1, answer([{"type": "text", "text": A1["content"]}]),  # type: ignore[arg-type]
                                            Q2, A2, Q3]},
         shared="<|system|>\ns\n" + said(Q1) + "<|assistant|>\n"),
    Case(name="reasoning items of Responses", kind=THINKING, place="input[1].role",
         before={"input": [Q1, {"type": "reasoning", "id": "rs_1",
                                "summary": [{"type": "summary_text", "text": "Hm."}]}, A1, Q2]},
         after={"input": [Q1, A1, Q2, A2, Q3]}, shared=said(Q1) + "<"),
    Case(name="an empty think block in a templated prompt", kind=THINKING, place="prompt",
         before="<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
                "Hello there, sailor.<|im_end|>\n<|im_start|>user\nMore<|im_end|>\n",
         after="<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello there, sailor."
               "<|im_end|>\n<|im_start|>user\nMore<|im_end|>\n<|im_start|>assistant\n",
         shared="<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"),
]

EDITS = [
    Case(name="an edited answer", kind=EDITED, place="messages[2].content",
         detail="an edited message of the assistant",
         before=chat(SYS, Q1, A1, Q2), after=chat(SYS, Q1, answer("Oranges."), Q2, A2, Q3),
         shared=said(SYS, Q1) + "<|assistant|>\n"),
    Case(name="a number that is no counter", kind=EDITED, place="messages[1].content",
         before=chat(SYS, user("I have 3 apples."), A1, Q2),
         after=chat(SYS, user("I have 4 apples."), A1, Q2, A2, Q3),
         shared=said(SYS) + "<|user|>\nI have "),
    Case(name="another system prompt", kind=SYSTEM, place="messages[0].content",
         before=chat(system("You are a pirate and speak so."), Q1),
         after=chat(system("Be brief."), Q1), shared="<|system|>\n"),
    Case(name="a tool more", kind=SYSTEM, place="tools[1]",
         before=chat(Q1, tools=[tool("read")]),
         after=chat(Q1, A1, Q2, tools=[tool("read"), tool("write")]),
         shared=tool_text("read"), detail="another tool set: write added"),
    Case(name="a tool gone", kind=SYSTEM, place="tools[0].function.name",
         before=chat(Q1, tools=[tool("read"), tool("write")]),
         after=chat(Q1, tools=[tool("write")]), detail="another tool set: read gone",
         shared='{"type": "function", "function": {"name": "'),
    Case(name="another model", kind=MODEL, place="model", before=chat(Q1),
         after=chat(Q1, A1, Q2) | {"model": "n"}, shared="",
         detail="another model (m, then n)"),
    Case(name="an image changed", kind=EDITED, place="messages[0].content[0]",
         before=chat({"role": "user", "content": [
             {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
             {"type": "text", "text": "What is it, on this picture?"}]}),
         after=chat({"role": "user", "content": [
             {"type": "image_url", "image_url": {"url": "data:image/png;base64,CCCC"}},
             {"type": "text", "text": "What is it, on this picture?"}]}, A1, Q2),
         shared="<|user|>\n[image "),
    Case(name="nothing in common", kind=UNKNOWN, place="messages[0].content",
         before=chat(user("Tell me of the sea.")), after=chat(user("Quickly: 12 times 12?")),
         shared="<|user|>\n"),
    Case(name="plain prompts with nothing in common", kind=UNKNOWN, place="prompt",
         before="Tell me of the sea.", after="Quickly: 12 times 12?", shared=""),
]

SEVERAL = [
    Case(name="a clock, and a memory behind it", kind=TIME, then=(INSERTED,),
         before=chat(system(f"Now: 10:41\n{DOC}"), Q1), place="messages[0].content",
         after=chat(system(f"Now: 10:42\n{DOC}"), system(MEMORY), Q1, A1, Q2),
         shared="<|system|>\nNow: 10:4"),
    Case(name="a clock, and a window", kind=TIME, then=(CUT,), place="messages[0].content",
         before=chat(system(f"Now: 10:41\n{DOC}"), Q1, A1, Q2, A2, Q3),
         after=chat(system(f"Now: 10:42\n{DOC}"), Q2, A2, Q3, A3, Q4),
         shared="<|system|>\nNow: 10:4"),
    Case(name="white space, and a clock", kind=FORM, then=(TIME,), place="prompt",
         before=f"You  answer.\n{DOC}It is 10:41 now.\n{DOC}",
         after=f"You answer.\n{DOC}It is 10:42 now.\n{DOC}more", shared="You "),
    Case(name="two clocks", kind=TIME, then=(TIME,), place="prompt",
         before=f"Start 10:41\n{DOC}End 10:41:07\n{DOC}",
         after=f"Start 10:42\n{DOC}End 10:42:09\n{DOC}more", shared="Start 10:4"),
]

HISTORY = [*BLOCKS, *WINDOWS, *THOUGHTS, *EDITS, *SEVERAL]
