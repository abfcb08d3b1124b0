// The slot of the bridge's switch in which the DC buffer is: from records of the host to memory, beside the slot of the device.
//
// It has a stream, a lease and a downstream port of its own (es_peb_parse, es_peb_life, es_peb_down), as if it were in a box of its own; the Upstream Port is that of
// both. Bodies come to both slots, a beat at a time (`s_axis_*`). What the device asks of the buffer comes at `s_device_*`; see es_peb_dc.
module es_peb_dc_slot #(
    parameter int DATA_W = 64,  // bits of tdata: 64, 128, 256 or 512
    parameter int STREAMS = 16,  // streams that a session can have, 2 to 256
    parameter int BITS = 16  // the buffer has 2**BITS bytes, 12 to 40
) (
    input wire clk,
    input wire rst,
    input wire session_rst,

    input  wire  [255:0] function_name,
    input  wire          up,
    input  wire          may,
    output logic         broken,

    // The device's slot.
    input  wire                                     other,
    input  wire                              [15:0] other_stream,
    input  wire                              [15:0] other_domain,
    input  wire                                     other_ending,
    input  wire                                     other_looking,
    input  wire                                     clear_upper,
    output es_peb_pkg::upstream_write_t             told,
    input  wire es_peb_pkg::upstream_write_t        heard,

    output logic        attached,
    output logic [15:0] stream,
    output logic        ending,

    input  wire  [  DATA_W-1:0] s_axis_tdata,
    input  wire  [DATA_W/8-1:0] s_axis_tkeep,
    input  wire                 s_axis_tlast,
    input  wire                 s_axis_tvalid,
    output logic                s_axis_tready,

    output logic [15:0] m_ctl_stream,
    output logic [63:0] m_ctl_message,
    output logic        m_ctl_long,
    output logic        m_ctl_valid,
    input  wire         m_ctl_ready,

    output es_peb_pkg::tlp_t m_answer,
    output logic             m_answer_valid,
    input  wire              m_answer_ready,

    // About the address of a Request of the device, as es_peb_up asks for it.
    input  wire  [63:0] address,
    output logic        looking,
    output logic        claims,
    output logic        hit,

    input  wire es_peb_pkg::tlp_t s_device_tlp,
    input  wire                   s_device_valid,
    output logic                  s_device_ready,

    input  wire  [  DATA_W-1:0] s_device_tdata,
    input  wire  [DATA_W/8-1:0] s_device_tkeep,
    input  wire                 s_device_tlast,
    input  wire                 s_device_tvalid,
    output logic                s_device_tready,

    input wire device_lost,
    input wire device_room,

    output logic [12:0] m_hdr_bytes,
    output logic        m_hdr_relaxed,
    output logic        m_host_valid,
    input  wire         m_host_ready,
    output logic        m_device_valid,
    input  wire         m_device_ready,

    output logic [  DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic                m_axis_tlast,
    output logic                m_host_tvalid,
    input  wire                 m_host_tready,
    output logic                m_device_tvalid,
    input  wire                 m_device_tready,

    output logic device_busy,

    output logic [BITS-$clog2(DATA_W/8)-1:0] m_mem_address,
    output logic                             m_mem_write,
    output logic [               DATA_W-1:0] m_mem_data,
    output logic [             DATA_W/8-1:0] m_mem_strobe,
    output logic                             m_mem_valid,
    input  wire                              m_mem_ready,
    input  wire  [               DATA_W-1:0] s_mem_data,
    input  wire                              s_mem_valid,

    output logic [31:0] stat_down,
    output logic [31:0] stat_malformed,
    output logic [31:0] stat_spoofed,
    output logic [31:0] stat_unrouted,
    output logic [31:0] stat_unrouted_completions,
    output logic [31:0] stat_attached,
    output logic [31:0] stat_denied,
    output logic [31:0] stat_unknown,
    output logic [31:0] stat_host,
    output logic [31:0] stat_device,
    output logic [31:0] stat_refused
);
  localparam int B = DATA_W / 8;
  localparam logic [4:0] NUMBER = 5'd1;

  logic link, forget, halt, flush, flush_host, clear_ports, link_reset, link_done, link_enabled, host_busy;
  logic ctl_own, ctl_named, ctl_valid, ctl_ready;
  logic [4:0] ctl_dws;
  logic [7:0] ctl_code;
  logic [15:0] ctl_stream, ctl_payload, ctl_read, ctl_domain, domain, function_id;
  logic [DATA_W-1:0] parsed_data, whole_data, down_data;
  logic [B-1:0] parsed_keep, whole_keep, down_keep;
  logic parsed_last, parsed_valid, parsed_ready, whole_last, whole_valid, whole_ready, down_last, down_valid, down_ready;
  logic whole_good, whole_hdr_valid, whole_hdr_ready, down_hdr_valid, down_hdr_ready, decoded;
  logic [31:0] stat_overlong, stat_bad;
  es_peb_pkg::tlp_t whole_tlp, down_tlp;

  /* verilator lint_off PINCONNECTEMPTY */
  es_peb_parse #(
      .DATA_W (DATA_W),
      .STREAMS(STREAMS)
  ) parse (
      .clk,
      .rst          (session_rst),
      .clear        (rst),
      .attached,
      .stream,
      .forget       (flush_host),
      .function_name,
      .other        (1'b0),
      .other_stream ('0),
      .other_name   ('0),
      .s_axis_tdata,
      .s_axis_tkeep,
      .s_axis_tlast,
      .s_axis_tvalid,
      .s_axis_tready,
      .m_axis_tdata (parsed_data),
      .m_axis_tkeep (parsed_keep),
      .m_axis_tlast (parsed_last),
      .m_axis_tvalid(parsed_valid),
      .m_axis_tready(parsed_ready),
      .m_ctl_own    (ctl_own),
      .m_ctl_code   (ctl_code),
      .m_ctl_dws    (ctl_dws),
      .m_ctl_status (),
      .m_ctl_named  (ctl_named),
      .m_ctl_other  (),
      .m_ctl_domain (ctl_domain),
      .m_ctl_stream (ctl_stream),
      .m_ctl_payload(ctl_payload),
      .m_ctl_read   (ctl_read),
      .m_ctl_valid  (ctl_valid),
      .m_ctl_ready  (ctl_ready),
      .broken,
      .stat_stray   ()
  );

  es_peb_intake #(
      .DATA_W(DATA_W),
      .DEPTH (8192 / B)
  ) intake (
      .clk,
      .rst          (rst || flush_host),
      .clear        (rst),
      .s_axis_tdata (parsed_data),
      .s_axis_tkeep (parsed_keep),
      .s_axis_tlast (parsed_last),
      .s_axis_tvalid(parsed_valid),
      .s_axis_tready(parsed_ready),
      .m_hdr_tlp    (whole_tlp),
      .m_hdr_good   (whole_good),
      .m_hdr_valid  (whole_hdr_valid),
      .m_hdr_ready  (whole_hdr_ready),
      .m_axis_tdata (whole_data),
      .m_axis_tkeep (whole_keep),
      .m_axis_tlast (whole_last),
      .m_axis_tvalid(whole_valid),
      .m_axis_tready(whole_ready),
      .stat_overlong
  );

  es_peb_down #(
      .DATA_W(DATA_W),
      .NUMBER(NUMBER)
  ) down (
      .clk,
      .rst              (rst || flush_host),
      .clear_ports,
      .clear_upper,
      .clear            (rst),
      .link,
      .forget,
      .flush,
      .hold             (other_looking),
      .told,
      .heard,
      .s_hdr_tlp        (whole_tlp),
      .s_hdr_good       (whole_good),
      .s_hdr_valid      (whole_hdr_valid),
      .s_hdr_ready      (whole_hdr_ready),
      .s_axis_tdata     (whole_data),
      .s_axis_tkeep     (whole_keep),
      .s_axis_tlast     (whole_last),
      .s_axis_tvalid    (whole_valid),
      .s_axis_tready    (whole_ready),
      .m_hdr_tlp        (down_tlp),
      .m_hdr_class      (),
      .m_hdr_relaxed    (),
      .m_hdr_fence      (),
      .m_hdr_transaction(),
      .m_hdr_valid      (down_hdr_valid),
      .m_hdr_ready      (down_hdr_ready && !halt),
      .m_axis_tdata     (down_data),
      .m_axis_tkeep     (down_keep),
      .m_axis_tlast     (down_last),
      .m_axis_tvalid    (down_valid),
      .m_axis_tready    (down_ready),
      .m_answer,
      .m_answer_valid,
      .m_answer_ready,
      .function_id,
      .port_id          (),
      .up_master        (),
      .peer_master      (),
      .link_enabled,
      .address,
      .looking,
      .claims,
      .stat_forwarded   (stat_down),
      .stat_malformed   (stat_bad),
      .stat_spoofed,
      .stat_unrouted,
      .stat_unrouted_completions
  );

  es_peb_life #(
      .STREAMS(STREAMS),
      .DOMAINS(1),
      .SLOW   (1),
      .PORT   ({8'd2, NUMBER, 3'd0})
  ) life (
      .clk,
      .rst,
      .up           (up && !session_rst),
      .may,
      .attached,
      .stream,
      .max_payload  (),
      .max_read     (),
      .domain,
      .other,
      .other_stream,
      .hold         (other_ending),
      .s_ctl_own    (ctl_own),
      .s_ctl_other  (!ctl_named),
      .s_ctl_code   (ctl_code),
      .s_ctl_short  (ctl_dws < 5'd10),
      .s_ctl_named  (ctl_named),
      .s_ctl_stream (ctl_stream),
      .s_ctl_payload(ctl_payload),
      .s_ctl_read   (ctl_read),
      .s_ctl_domain (ctl_domain),
      .s_ctl_valid  (ctl_valid),
      .s_ctl_ready  (ctl_ready),
      .m_ctl_stream,
      .m_ctl_message,
      .m_ctl_long,
      .m_ctl_valid,
      .m_ctl_ready,
      .link_enabled,
      .down_busy    (host_busy),
      .up_busy      (1'b0),
      .link,
      .forget,
      .ending,
      .halt,
      .flush,
      .flush_host,
      .clear_ports,
      .link_reset,
      .link_done,
      .stat_attached,
      .stat_denied,
      .stat_unknown,
      .stat_resets  ()
  );
  /* verilator lint_on PINCONNECTEMPTY */

  es_peb_dc #(
      .DATA_W(DATA_W),
      .BITS  (BITS)
  ) buffer (
      .clk,
      .rst,
      .reset        (link_reset),
      .reset_done   (link_done),
      .id           (function_id),
      .address,
      .hit          (decoded),
      .s_host_tlp   (down_tlp),
      .s_host_valid (down_hdr_valid && !halt),
      .s_host_ready (down_hdr_ready),
      .s_host_tdata (down_data),
      .s_host_tkeep (down_keep),
      .s_host_tlast (down_last),
      .s_host_tvalid(down_valid),
      .s_host_tready(down_ready),
      .s_device_tlp,
      .s_device_valid,
      .s_device_ready,
      .s_device_tdata,
      .s_device_tkeep,
      .s_device_tlast,
      .s_device_tvalid,
      .s_device_tready,
      .host_lost    (ending || session_rst),
      .device_lost,
      .device_room,
      .m_hdr_bytes,
      .m_hdr_relaxed,
      .m_host_valid,
      .m_host_ready,
      .m_device_valid,
      .m_device_ready,
      .m_axis_tdata,
      .m_axis_tkeep,
      .m_axis_tlast,
      .m_host_tvalid,
      .m_host_tready,
      .m_device_tvalid,
      .m_device_tready,
      .host_busy,
      .device_busy,
      .m_mem_address,
      .m_mem_write,
      .m_mem_data,
      .m_mem_strobe,
      .m_mem_valid,
      .m_mem_ready,
      .s_mem_data,
      .s_mem_valid,
      .stat_host,
      .stat_device,
      .stat_refused
  );

  // Functions of one domain reach each other, as long as the host has both.
  assign hit = decoded && link && domain != '0 && domain == other_domain;
  assign stat_malformed = stat_bad + stat_overlong;
endmodule
