"""The words of the pages, in English and Chinese."""

from __future__ import annotations

from flask import has_request_context, request, session

LANGUAGES = {"en": "English", "zh": "中文"}

_WORDS: dict[str, tuple[str, str]] = {
    "runs": ("Runs", "运行"),
    "sign_in": ("Sign in", "登录"),
    "sign_out": ("Sign out", "退出"),
    "user_name": ("User name", "用户名"),
    "password": ("Password", "密码"),
    "sign_in_lead": (
        "Machine-learning work of every framework, on one platform.",
        "一个平台,运行所有框架的机器学习任务。",
    ),
    "first_password": (
        "First start? The password of admin was printed once, and is kept in the file admin-password in CUBE_HOME.",
        "首次启动?admin 的密码只打印一次,并保存在 CUBE_HOME 下的 admin-password 文件中。",
    ),
    "bad_credentials": ("The user name or the password is wrong.", "用户名或密码错误。"),
    "too_many": ("Too many attempts. Try again in {seconds} s.", "尝试次数过多,请在 {seconds} 秒后重试。"),
    "form_expired": ("This form has expired. Please try again.", "表单已过期,请重试。"),
    "users": ("Users", "用户"),
    "change_password": ("Change password", "修改密码"),
    "signed_in_as": ("Signed in as {name}", "已登录:{name}"),
    "run": ("Run", "运行"),
    "name": ("Name", "名称"),
    "project": ("Project", "项目"),
    "state": ("State", "状态"),
    "submitted": ("Submitted", "提交时间"),
    "duration": ("Duration", "时长"),
    "by": ("By", "提交者"),
    "all": ("All", "全部"),
    "none_yet": ("No runs yet", "还没有运行"),
    "none_yet_lead": (
        "Start one from a terminal. The sample pipeline trains three models on real handwritten digits:",
        "在终端中启动一个。示例流水线会用真实的手写数字训练三个模型:",
    ),
    "none_match": ("No runs in this state", "没有处于此状态的运行"),
    "show_all": ("Show all runs", "显示全部运行"),
    "older": ("Older runs", "更早的运行"),
    "newest": ("Newest runs", "最新的运行"),
    "loading": ("Loading …", "加载中…"),
    "back": ("All runs", "全部运行"),
    "cancel": ("Cancel run", "取消运行"),
    "cancel_sure": ("Cancel this run? Its running tasks are stopped.", "确定取消此运行?正在运行的任务会被停止。"),
    "cancelling": ("Cancelling …", "正在取消…"),
    "retry": ("Retry failed tasks", "重试失败任务"),
    "run_again": ("Run again", "再次运行"),
    "tasks": ("Tasks", "任务"),
    "task": ("Task", "任务"),
    "attempts": ("Attempts", "尝试次数"),
    "reason": ("Reason", "原因"),
    "log": ("Log", "日志"),
    "log_of": ("Log of {task}", "{task} 的日志"),
    "follow": ("Follow", "跟随"),
    "log_empty": ("Nothing written yet.", "暂无输出。"),
    "log_cut": (
        "… earlier output is not shown here; `cube logs` has all of it …",
        "…此处不显示更早的输出;使用 `cube logs` 查看全部…",
    ),
    "close": ("Close", "关闭"),
    "outputs": ("Outputs", "输出"),
    "artifacts": ("Artifacts", "产物"),
    "metrics": ("Metrics", "指标"),
    "value": ("Value", "值"),
    "params": ("Parameters", "参数"),
    "live": ("Live", "实时"),
    "offline": ("Reconnecting …", "正在重新连接…"),
    "error_title": ("That did not work", "操作失败"),
    "try_again": ("Try again", "重试"),
    "no_script": (
        "This page needs JavaScript. The `cube` command does not.",
        "此页面需要 JavaScript;`cube` 命令则不需要。",
    ),
    "to_runs": ("To the runs", "前往运行列表"),
    "queued": ("queued", "排队中"),
    "running": ("running", "运行中"),
    "succeeded": ("succeeded", "成功"),
    "failed": ("failed", "失败"),
    "stopped": ("stopped", "已停止"),
    "blocked": ("waiting", "等待中"),
    "ready": ("ready", "就绪"),
    "admitted": ("starting", "启动中"),
    "active": ("running", "运行中"),
    "skipped": ("skipped", "已跳过"),
}


def language() -> str:
    """What was chosen on the page, else the first of the browser's languages that we speak."""
    if not has_request_context():
        return "en"
    chosen = session.get("locale")
    if chosen in LANGUAGES:
        return str(chosen)
    return request.accept_languages.best_match(list(LANGUAGES), default="en") or "en"


def words(lang: str) -> dict[str, str]:
    index = 1 if lang == "zh" else 0
    return {key: both[index] for key, both in _WORDS.items()}
